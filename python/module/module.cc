// _rondo: what the package rondo has in C++. It includes the limited API of Python 3.11, so that one file serves all
// versions from there on, and calls librondo_c.so, which is loaded before it or lies beside the package.
#include "python/module/module.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <iterator>

namespace rondo::python {
namespace {

// What a handler of a Python signal raised while a call of this thread waited. The call fails.
struct FromHandler {
  PyObject *type, *value, *trace;
};
// Owned references; last_error() hands them over.
thread_local FromHandler from_handler{};

// Asked every 100 ms by a call that waits: whether a signal's handler, Ctrl-C's among them, raises. Python runs
// handlers on its main thread alone: on others this finds nothing.
int signals_raise(void*) {
  const PyGILState_STATE state = until_the_end(PyGILState_Ensure);
  const int raised = PyErr_CheckSignals();
  if (raised != 0) PyErr_Fetch(&from_handler.type, &from_handler.value, &from_handler.trace);
  PyGILState_Release(state);
  return raised;
}

// What the library says of this thread's last failure, at most 64 of them. The library counts all of them; more than
// fit are left out.
template <typename Number>
Ref list_of(size_t (*said)(Number*, size_t)) {
  Number numbers[64];
  const size_t count = std::min(said(numbers, std::size(numbers)), std::size(numbers));
  Ref list = Ref::checked(PyList_New(0));
  for (size_t i = 0; i < count; ++i) PyList_Append(list.get(), Ref::checked(PyLong_FromLongLong(numbers[i])).get());
  return list;
}

// -1: the module has static state, so subinterpreters cannot have it.
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_rondo", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

void raise(PyObject* type, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyErr_FormatV(type, format, values);
  va_end(values);
  throw Raised();
}

// The error keeps its own class.
void raise(PyObject* error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  throw Raised();
}

PyObject* imported(PyObject*& cache, const char* module, const char* name) {
  if (cache == nullptr) {
    const Ref from = Ref::checked(PyImport_ImportModule(module));
    cache = Ref::checked(PyObject_GetAttrString(from.get(), name)).release();
  }
  return cache;
}

// What a handler raised comes before the call's own failure, which is that it was interrupted.
Ref last_error(rondo_result_t result) {
  if (from_handler.type != nullptr) {
    const FromHandler raised = std::exchange(from_handler, {});
    PyErr_Restore(raised.type, raised.value, raised.trace);
    throw Raised();
  }
  const char* const text = rondo_last_error();
  Ref message = Ref::checked(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
  const Ref ranks = list_of(rondo_last_error_ranks), world_ranks = list_of(rondo_last_error_world_ranks);
  const Ref processes = list_of(rondo_last_error_processes);
  static PyObject* of_code = nullptr;
  return call(imported(of_code, "rondo.errors", "_of_code"), "iOOOO", result, message.get(), ranks.get(),
              world_ranks.get(), processes.get());
}

PyObject* failure_of(PyObject*, PyObject* code) {
  return guarded([&] { return last_error(static_cast<rondo_result_t>(PyLong_AsLong(code))).release(); });
}

// Called at the end of the process (rondo/start.py): a wait that asked Python after its end would crash.
PyObject* stop_asking(PyObject*, PyObject*) {
  without_gil([] { return rondo_set_interrupt(nullptr, nullptr); });
  Py_RETURN_NONE;
}

}  // namespace rondo::python

PyMODINIT_FUNC PyInit__rondo() {
  using namespace rondo::python;
  return guarded([] {
    find_numpy();
    Ref module = Ref::checked(PyModule_Create(&definition));
    for (const auto add : {add_work, add_communicator, add_functions}) add(module.get());
    PyModule_AddStringConstant(module.get(), "VERSION", rondo_version());
    check(rondo_set_interrupt(signals_raise, nullptr));
    return module.release();
  });
}
