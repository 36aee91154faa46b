#include "python/module/options.h"

#include <cstddef>

namespace rondo::python {
namespace {

// A function of rondo._arguments. `cache`: static, of the caller.
Ref checked_there(PyObject*& cache, const char* function, PyObject* value, const char* what, int rank) {
  return call(imported(cache, "rondo._arguments", function), "Osi", value, what, rank);
}

// rondo_user_op_t: the context is a rondo.user_op.Fold, which lets nothing out. The views last as long as the call:
// rondo.user_op.Fold makes arrays of them, which must not be kept.
void fold(const void* in, void* inout, size_t count, void* context) {
  // Any thread may call this, also the engine's, which Python has not seen before.
  const PyGILState_STATE state = until_the_end(PyGILState_Ensure);
  {
    auto* const by = static_cast<PyObject*>(context);
    const Ref bytes(PyObject_GetAttrString(by, "element_bytes"));
    const auto length = static_cast<Py_ssize_t>(count) * PyLong_AsSsize_t(bytes.get());
    const Ref a(PyMemoryView_FromMemory(const_cast<char*>(static_cast<const char*>(in)), length, PyBUF_READ));
    const Ref b(PyMemoryView_FromMemory(static_cast<char*>(inout), length, PyBUF_WRITE));
    const Ref returned(a && b ? PyObject_CallFunctionObjArgs(by, a.get(), b.get(), nullptr) : nullptr);
    // An exception cannot pass through the engine's frames.
    if (!returned) PyErr_WriteUnraisable(by);
  }
  PyGILState_Release(state);
}

// rondo_user_op_t: of complex numbers.
template <typename Part>
void multiply(const void* in, void* inout, size_t count, void*) {
  const auto* a = static_cast<const Part*>(in);
  auto* b = static_cast<Part*>(inout);
  for (size_t i = 0; i < 2 * count; i += 2) {
    const Part real = a[i] * b[i] - a[i + 1] * b[i + 1];
    b[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];
    b[i] = real;
  }
}

}  // namespace

int checked_number(PyObject* value, const char* what, int rank) {
  static PyObject* function = nullptr;
  return static_cast<int>(PyLong_AsLong(checked_there(function, "whole_number", value, what, rank).get()));
}

// The Fold is kept with the call, since the library has its address.
void Options::fold_by(PyObject* op, int dtype, PyObject* handle) {
  static PyObject* type = nullptr;
  kept_ = call(imported(type, "rondo.user_op", "Fold"), "OsO", op, dtype_name(dtype), handle);
  const Ref bytes = Ref::checked(PyObject_GetAttrString(kept_.get(), "element_bytes"));
  const Ref commutative = Ref::checked(PyObject_GetAttrString(kept_.get(), "commutative"));
  options_.user = {fold, kept_.get(), static_cast<uint32_t>(PyLong_AsUnsignedLong(bytes.get())),
                   PyObject_IsTrue(commutative.get())};
  used_ = true;
}
void Options::multiply_complex(int dtype) {
  const bool single = dtype == RONDO_FLOAT32;
  options_.user = {single ? multiply<float> : multiply<double>, nullptr, single ? 8u : 16u, 1};
  used_ = true;
}

// Each value is checked by a function of rondo._arguments, which raises with the parameter's name.
void Options::read(const Given& given, int rank, uint64_t count) {
  static PyObject *milliseconds, *real_number, *text_of, *fields_of, *stream_handle;
  if (given.has("wire")) {
    const Ref fields = call(imported(fields_of, "rondo.wire", "fields_of"), "OK", given["wire"], count);
    PyObject *residual = nullptr, *kept = nullptr;
    if (PyArg_ParseTuple(fields.get(), "iiKOO", &options_.wire, &options_.wire_flags, &options_.wire_seed, &residual,
                         &kept) == 0) {
      throw Raised();
    }
    options_.residual = static_cast<float*>(PyLong_AsVoidPtr(residual));
    kept_ = Ref::borrowed(kept);
  }
  if (given.has("timeout")) {
    const Ref number = call(imported(milliseconds, "rondo._arguments", "milliseconds"), "Oi", given["timeout"], rank);
    options_.timeout_ms = PyLong_AsLongLong(number.get());
  }
  if (given.has("scalar")) {
    options_.scalar =
        PyFloat_AsDouble(checked_there(real_number, "real_number", given["scalar"], "scalar", rank).get());
  }
  if (given.has("algorithm")) {
    algorithm_ = PyBytes_AsString(checked_there(text_of, "text_of", given["algorithm"], "algorithm", rank).get());
    options_.algorithm = algorithm_.c_str();
  }
  if (given.has("stream")) {
    options_.on_stream = 1;
    options_.stream = PyLong_AsVoidPtr(
        call(imported(stream_handle, "rondo._arguments", "stream_handle"), "O", given["stream"]).get());
  }
}

}  // namespace rondo::python
