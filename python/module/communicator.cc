// The base of rondo.Communicator, and its methods that are written in this folder.
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "python/module/request.h"

namespace rondo::python {
namespace {

// Python's C API passes a method no more than its arguments, so each row has an entry of its own. More than the methods
// of rondo.Communicator that are written here; row_named() refuses one beyond.
constexpr size_t kMostRows = 40;
// Filled at import, in the order of method()'s calls.
Row rows[kMostRows];

// A row's entry: it parses the arguments, and calls the body.
template <size_t kRow>
PyObject* enter(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    const Given given(rows[kRow], self, arguments, count, names);
    Request request(rows[kRow], self, given);
    return rows[kRow].body(request);
  });
}
using Entry = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template <size_t... kRows>
constexpr std::array<Entry, sizeof...(kRows)> entries_of(std::index_sequence<kRows...>) {
  return {enter<kRows>...};
}
constexpr auto kEntries = entries_of(std::make_index_sequence<kMostRows>());

// nullptr: no body has this name.
const NamedBody* body_named(std::string_view name) {
  for (const std::span<const NamedBody> bodies : {collective_bodies(), message_bodies()}) {
    const auto found = std::ranges::find(bodies, name, &NamedBody::name);
    if (found != bodies.end()) return &*found;
  }
  return nullptr;
}

// The method's row, or the first that is free.
Row& row_named(const char* name) {
  Row* const found = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const Row& each) { return each.name.empty() || each.name == name; });
  if (found == std::end(rows)) raise(PyExc_SystemError, "%s() is beyond the %d methods that fit", name, int{kMostRows});
  found->name = name;
  return *found;
}

// The capsule's end leaves the group, where this was its last reference.
void free_communicator(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  for (PyObject* each :
       {reinterpret_cast<Communicator*>(object)->handle, reinterpret_cast<Communicator*>(object)->batch}) {
    Py_XDECREF(each);
  }
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

PyMemberDef members[] = {{"_handle", T_OBJECT, offsetof(Communicator, handle), 0, nullptr},
                         {"_batch", T_OBJECT, offsetof(Communicator, batch), 0, nullptr},
                         {"rank", T_INT, offsetof(Communicator, rank), 0, nullptr},
                         {"size", T_INT, offsetof(Communicator, size), 0, nullptr},
                         {"_purpose", T_ULONGLONG, offsetof(Communicator, purpose), 0, nullptr},
                         {}};
PyType_Slot slots[] = {
    {Py_tp_members, members}, {Py_tp_dealloc, reinterpret_cast<void*>(free_communicator)}, {0, nullptr}};
PyType_Spec spec = {"_rondo.Communicator", sizeof(Communicator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

// method(class, function, names of its parameters, how many are positional, {name: default}, documentation, facts): the
// method of the same name that is written here, or None. facts: of a collective of equal blocks, as rondo/calls.py has
// them; else None.
PyObject* method(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *type = nullptr, *function = nullptr, *names = nullptr, *defaults = nullptr, *facts = nullptr;
    const char *name = nullptr, *documentation = nullptr;
    Py_ssize_t positional = 0;
    if (PyArg_ParseTuple(arguments, "OsOO!nOyO", &type, &name, &function, &PyTuple_Type, &names, &positional, &defaults,
                         &documentation, &facts) == 0) {
      throw Raised();
    }
    const NamedBody* const named = body_named(name);
    if (named == nullptr && facts == Py_None) return Py_NewRef(Py_None);
    Row& row = row_named(name);
    row.declared = Py_NewRef(function);
    row.body = named != nullptr ? named->body : even;
    row.starts = named != nullptr && named->starts;
    if (facts != Py_None && PyArg_ParseTuple(facts, "iiiiiO", &row.collective, &row.blocks_in, &row.blocks_out,
                                             &row.root_sends, &row.root_gets, &row.new_out) == 0) {
      throw Raised();
    }
    Py_XINCREF(row.new_out);
    row.declare(positional, names, defaults);
    const auto entry = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kEntries[&row - rows]));
    const char* const text = (new std::string(documentation))->c_str();  // for ever, as the definition
    return PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type),
                             new PyMethodDef{row.name.c_str(), entry, METH_FASTCALL | METH_KEYWORDS, text});
  });
}

void add_communicator(PyObject* module) {
  const Ref type = Ref::checked(PyType_FromSpec(&spec));
  if (PyModule_AddObjectRef(module, "Communicator", type.get()) != 0) throw Raised();
}

}  // namespace rondo::python
