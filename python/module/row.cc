#include "python/module/row.h"

namespace rondo::python {

// Parameters that the method lacks keep None, which means the default everywhere.
void Row::declare(Py_ssize_t positional_count, PyObject* parameters, PyObject* values) {
  positional = positional_count;
  count = PyTuple_Size(parameters);
  defaults.fill(Py_None);
  declares.fill(false);
  for (Py_ssize_t i = 0; i < count; ++i) {
    names[i] = Py_NewRef(PyTuple_GetItem(parameters, i));
    const auto* const known = std::find_if(std::begin(kParameters), std::end(kParameters), [&](const char* each) {
      return PyUnicode_CompareWithASCIIString(names[i], each) == 0;
    });
    if (known == std::end(kParameters)) {
      raise(PyExc_SystemError, "%s() has an unknown parameter %S", name.c_str(), names[i]);
    }
    const size_t index = static_cast<size_t>(known - kParameters);
    order[i] = static_cast<uint8_t>(index);
    declares[index] = true;
    defaults[index] = Py_XNewRef(PyDict_GetItem(values, names[i]));
  }
}

// It costs what a call of Python does, and only mistakes come here.
void Given::refuse(const Row& of, PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names) {
  const Ref all = Ref::checked(PyTuple_New(positional + 1)), by_name = Ref::checked(PyDict_New());
  PyTuple_SetItem(all.get(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < positional; ++i) PyTuple_SetItem(all.get(), i + 1, Py_NewRef(arguments[i]));
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
    PyDict_SetItem(by_name.get(), PyTuple_GetItem(names, i), arguments[positional + i]);
  }
  Ref::checked(PyObject_Call(of.declared, all.get(), by_name.get()));
  raise(PyExc_SystemError, "%S does not say what these arguments lack", of.declared);
}

}  // namespace rondo::python
