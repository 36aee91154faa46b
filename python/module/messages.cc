// Messages. rondo/calls.py documents them.

#include "python/module/request.h"

namespace rondo::python {
namespace {

PyObject* send(Request& on) {
  const Buffer& from = on.buffer("array", false);
  const int dest = on.whole("dest"), tag = on.whole("tag");
  return on.submit_call(Py_None, rondo_send, rondo_send_async, from.address, from.count, from.dtype, dest, tag);
}

// The Message is the result; of the asynchronous form, that of the Work when it is over.
PyObject* receive(Request& on) {
  const Buffer& to = on.buffer("array", true);
  const int source = on.whole("source"), tag = on.whole("tag");
  return on.bring(rondo_recv, rondo_recv_async, to.address, to.count, to.dtype, source, tag);
}

// Receives the message that a matched probe has found.
PyObject* receive_matched(Request& on) {
  const Buffer& to = on.buffer("array", true);
  const Ref number = Ref::checked(PyObject_GetAttrString(on.given["matched"], "matched"));
  const uint64_t matched = PyLong_AsUnsignedLongLong(number.get());
  if (PyErr_Occurred() != nullptr) throw Raised();
  return on.bring(rondo_mrecv, rondo_mrecv_async, to.address, to.count, to.dtype, matched);
}

template <auto Probe, auto Start>
PyObject* probe(Request& on) {
  const int source = on.whole("source"), tag = on.whole("tag");
  return on.bring(Probe, Start, source, tag);
}

// Submits a call that has no form which returns a Work.
template <typename Block>
void submit_blocking(Request& on, const Options& used, Block block) {
  Ref(on.submit(Py_None, used, block, [](rondo_comm_t, rondo_work_t*) { return RONDO_OK; }));
}

template <auto Probe>
PyObject* look(Request& on) {
  const int source = on.whole("source"), tag = on.whole("tag");
  rondo_message_t message{};
  int found = 0;
  submit_blocking(on, on.options(0), [&](rondo_comm_t comm) { return Probe(comm, source, tag, &found, &message); });
  return found != 0 ? message_of(message).release() : Py_NewRef(Py_None);
}

// Both arrays have one type, which the library takes once.
PyObject* sendrecv(Request& on) {
  const Buffer &from = on.buffer("array", false), &to = on.buffer("out", true);
  if (from.dtype != to.dtype || from.per_item != to.per_item) {
    raise(PyExc_TypeError, "array is %s, and out is %s", dtype_name(from.dtype), dtype_name(to.dtype));
  }
  const int dest = on.whole("dest"), source = on.whole("source"), tag = on.whole("tag");
  const Options used = on.options(0);
  rondo_message_t message{};
  submit_blocking(on, used, [&](rondo_comm_t comm) {
    return rondo_sendrecv(comm, from.address, from.count, dest, to.address, to.count, source, from.dtype, tag,
                          used.get(), &message);
  });
  return message_of(message).release();
}

constexpr NamedBody kMessageBodies[] = {{"send", send},
                                        {"isend", send, true},
                                        {"recv", receive},
                                        {"irecv", receive, true},
                                        {"mrecv", receive_matched},
                                        {"imrecv", receive_matched, true},
                                        {"probe", probe<rondo_probe, rondo_probe_async>},
                                        {"mprobe", probe<rondo_mprobe, rondo_mprobe_async>},
                                        {"iprobe", look<rondo_iprobe>},
                                        {"improbe", look<rondo_improbe>},
                                        {"sendrecv", sendrecv}};

}  // namespace

std::span<const NamedBody> message_bodies() { return kMessageBodies; }

}  // namespace rondo::python
