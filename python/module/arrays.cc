#include <cstddef>
#include <iterator>
#include <string>

#include "python/module/module.h"

namespace rondo::python {
namespace {

// NumPy's array and dtype as its binary interface has them since 1.7 (numpy/ndarraytypes.h): up to what is read here.
// The limited API has no access to it, so its layout is checked at import (find_numpy()).
struct Array {
  PyObject base;
  char* data;
  int dimensions;
  Py_ssize_t *shape, *strides;
  PyObject *owner, *dtype;
  int flags;
};
struct Dtype {
  PyObject base;
  PyObject* scalar;  // the type of its elements in Python
  char kind, letter, byte_order, unused;
  int number;
};
constexpr int kContiguous = 0x1, kWriteable = 0x400;  // of flags
constexpr int kUserTypes = 256;                       // the first number of a type that another package adds

// Set at import, for ever.
PyTypeObject* array_type;

// By rondo_dtype_t.
const char* const kNames[] = {"int8",    "uint8",   "int16",  "uint16",      "int32",
                              "uint32",  "int64",   "uint64", "float16",     "bfloat16",
                              "float32", "float64", "bool",   "float8_e4m3", "float8_e5m2"};
constexpr int kNone = -1;  // Rondo lacks the type
// By NumPy's numbers; long is as long as long long.
constexpr int kByNumber[] = {RONDO_BOOL,   RONDO_INT8,    RONDO_UINT8,  RONDO_INT16,  RONDO_UINT16,
                             RONDO_INT32,  RONDO_UINT32,  RONDO_INT64,  RONDO_UINT64, RONDO_INT64,
                             RONDO_UINT64, RONDO_FLOAT32, RONDO_FLOAT64};
constexpr int kComplex64 = 14, kComplex128 = 15, kObject = 17, kHalf = 23;

// An object without the attribute has no text, and no exception stays set.
bool has_text(PyObject* object, const char* attribute, const char* text) {
  const Ref value(PyObject_GetAttrString(object, attribute));
  if (!value) PyErr_Clear();
  return value && PyUnicode_Check(value.get()) && PyUnicode_CompareWithASCIIString(value.get(), text) == 0;
}

// A type of the package ml_dtypes, or none.
// The last answer is kept: programs reduce many arrays of one type, and its names are texts to compare. The global
// interpreter lock guards it.
int dtype_of_scalar(PyObject* scalar) {
  static PyObject* last = nullptr;
  static int found = kNone;
  if (scalar == last) return found;
  const auto is = [scalar](const char* name) { return has_text(scalar, "__name__", name); };
  found = !has_text(scalar, "__module__", "ml_dtypes") ? kNone
          : is("bfloat16")                             ? RONDO_BFLOAT16
          : is("float8_e4m3fn")                        ? RONDO_FLOAT8_E4M3
          : is("float8_e5m2")                          ? RONDO_FLOAT8_E5M2
                                                       : kNone;
  Py_XDECREF(std::exchange(last, Py_NewRef(scalar)));
  return found;
}

// '>' is the foreign byte order: this library runs on little-endian machines. kNone: the library lacks it.
int dtype_in(PyObject* dtype) {
  const auto& from = *reinterpret_cast<const Dtype*>(dtype);
  if (from.byte_order == '>' || from.number < 0) return kNone;
  if (from.number < static_cast<int>(std::size(kByNumber))) return kByNumber[from.number];
  return from.number == kHalf ? RONDO_FLOAT16 : from.number >= kUserTypes ? dtype_of_scalar(from.scalar) : kNone;
}

// For error messages.
std::string all_names() {
  std::string names;
  for (const char* name : kNames) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

// Raises what is wrong with an array of NumPy's. needed: flags. dtype: by which it goes, or kNone.
[[noreturn]] void refuse(PyObject* object, const char* what, int needed, int dtype) {
  const auto& array = *reinterpret_cast<const Array*>(object);
  if ((needed & ~array.flags & kContiguous) != 0) refuse_strides(object, what);
  if (dtype != kNone) raise(PyExc_ValueError, "%s is read-only, and this call writes to it", what);
  raise(PyExc_TypeError, "%s has dtype %S; Rondo has %s", what, array.dtype, all_names().c_str());
}

// An array of a class of its own: a masked one would lose its mask. It is told by its attributes, since numpy.ma need
// not be imported.
void refuse_mask(PyObject* object, const char* what) {
  if (PyObject_HasAttrString(object, "_mask") != 0 && PyObject_HasAttrString(object, "filled") != 0) {
    raise(PyExc_TypeError, "%s is a masked array, whose mask would be lost: pass array.filled(value), or its data",
          what);
  }
}

// Elements of a type that the library lacks go as floats (complex) or as bytes. Python objects stay kNone.
void as_parts(PyObject* dtype, Buffer& made) {
  const auto& from = *reinterpret_cast<const Dtype*>(dtype);
  const Ref bytes = Ref::checked(PyObject_GetAttrString(dtype, "itemsize"));
  const Ref has_objects = Ref::checked(PyObject_GetAttrString(dtype, "hasobject"));
  const bool is_numpys = from.number >= 0 && from.number < kUserTypes && from.number != kObject;
  const bool is_plain = is_numpys || has_text(from.scalar, "__module__", "ml_dtypes");
  if (!is_plain || has_objects.get() == Py_True || PyLong_AsLong(bytes.get()) == 0) return;
  const bool native = from.byte_order != '>';
  const bool is_complex = native && (from.number == kComplex64 || from.number == kComplex128);
  made.dtype = !is_complex ? RONDO_UINT8 : from.number == kComplex64 ? RONDO_FLOAT32 : RONDO_FLOAT64;
  made.per_item = is_complex ? 2 : static_cast<uint64_t>(PyLong_AsLong(bytes.get()));
  made.foreign = Ref::borrowed(dtype);
}

// Reads NumPy's structure itself: asking for its attributes as Python objects would show in the time of small calls.
// The result refers to the array's memory, or to a packed copy that it owns.
Buffer of_numpy(PyObject* object, bool writes, const char* what, Takes takes) {
  const auto& array = *reinterpret_cast<const Array*>(object);
  if (Py_TYPE(object) != array_type) refuse_mask(object, what);
  const bool takes_all = takes == Takes::kEverything;
  const int needed = (writes ? kWriteable : 0) | (takes_all ? 0 : kContiguous);
  Buffer made;
  made.dtype = dtype_in(array.dtype);
  if (made.dtype == kNone && takes_all) as_parts(array.dtype, made);
  if ((array.flags & needed) != needed || made.dtype == kNone) refuse(object, what, needed, made.dtype);
  made.address = array.data;
  made.count = made.per_item;
  for (int i = 0; i < array.dimensions; ++i) made.count *= static_cast<uint64_t>(array.shape[i]);
  if ((array.flags & kContiguous) == 0) {
    // A packed copy is what the library gets. Buffer::copy_back() brings results to the strided array.
    static PyObject* contiguous = nullptr;
    made.owner = call(imported(contiguous, "numpy", "ascontiguousarray"), "O", object);
    made.address = reinterpret_cast<const Array*>(made.owner.get())->data;
    made.strided = Ref::borrowed(object);
    if (writes) made.packed_of = Ref::borrowed(object);
  }
  return made;
}

// --- DLPack, as dlpack.h has it, up to what is read here

// DLTensor. Its strides count elements; null: the array is contiguous.
struct Tensor {
  void* data;
  int32_t device_type, device_id, dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
// DLManagedTensorVersioned. The older form, DLManagedTensor, begins with its tensor.
struct VersionedTensor {
  uint32_t major, minor;
  void *manager, *deleter;
  uint64_t flags;
  Tensor tensor;
};
constexpr uint64_t kReadOnly = 1;  // of flags
constexpr struct {
  int code, bits, dtype;
} kByCode[] = {{0, 8, RONDO_INT8},     {1, 8, RONDO_UINT8},        {0, 16, RONDO_INT16},      {1, 16, RONDO_UINT16},
               {0, 32, RONDO_INT32},   {1, 32, RONDO_UINT32},      {0, 64, RONDO_INT64},      {1, 64, RONDO_UINT64},
               {2, 16, RONDO_FLOAT16}, {4, 16, RONDO_BFLOAT16},    {2, 32, RONDO_FLOAT32},    {2, 64, RONDO_FLOAT64},
               {6, 8, RONDO_BOOL},     {10, 8, RONDO_FLOAT8_E4M3}, {12, 8, RONDO_FLOAT8_E5M2}};

// owner: a capsule that nobody consumes, which frees its tensor when it goes.
Buffer of_dlpack(Ref owner, bool writes, const char* what) {
  const bool versioned = PyCapsule_IsValid(owner.get(), "dltensor_versioned") != 0;
  void* const inside = PyCapsule_GetPointer(owner.get(), versioned ? "dltensor_versioned" : "dltensor");
  if (inside == nullptr) throw Raised();
  const Tensor& tensor = versioned ? static_cast<VersionedTensor*>(inside)->tensor : *static_cast<Tensor*>(inside);
  if (writes && versioned && (static_cast<VersionedTensor*>(inside)->flags & kReadOnly) != 0) {
    raise(PyExc_ValueError, "%s is read-only, and this call writes to it", what);
  }
  Buffer made;
  made.address = static_cast<char*>(tensor.data) + tensor.byte_offset;
  made.count = 1;
  made.dtype = kNone;
  bool contiguous = true;
  const Ref shape = Ref::checked(PyTuple_New(tensor.dimensions));  // for the words
  for (int i = tensor.dimensions - 1; i >= 0; --i) {
    PyTuple_SetItem(shape.get(), i, PyLong_FromLongLong(tensor.shape[i]));
    const bool follows = tensor.strides == nullptr || tensor.strides[i] == static_cast<int64_t>(made.count);
    contiguous = contiguous && (tensor.shape[i] == 1 || follows);
    made.count *= static_cast<uint64_t>(tensor.shape[i]);
  }
  if (!contiguous && made.count > 1) {
    raise(PyExc_ValueError, "%s of shape %S is not contiguous: pass array.contiguous()", what, shape.get());
  }
  for (const auto& each : kByCode) {
    if (each.code == tensor.code && each.bits == tensor.bits && tensor.lanes == 1) made.dtype = each.dtype;
  }
  if (made.dtype == kNone) {
    raise(PyExc_TypeError, "%s has DLPack type code %d of %d bits, which Rondo lacks", what, tensor.code, tensor.bits);
  }
  made.owner = std::move(owner);
  return made;
}

}  // namespace

void Buffer::copy_back() const {
  static PyObject* copy = nullptr;
  if (packed_of) call(imported(copy, "numpy", "copyto"), "OO", packed_of.get(), owner.get());
}

void refuse_strides(PyObject* array, const char* what) {
  const Ref shape = Ref::checked(PyObject_GetAttrString(array, "shape"));
  const Ref strides = Ref::checked(PyObject_GetAttrString(array, "strides"));
  raise(PyExc_ValueError,
        "%s of shape %S is not contiguous (strides %S): pass numpy.ascontiguousarray(array), and copy results back "
        "where you need them",
        what, shape.get(), strides.get());
}

// What is no array of NumPy's goes through rondo._arguments.exported(), which knows its protocols.
Buffer buffer_of(PyObject* array, bool writes, const char* what, Takes takes) {
  if (PyObject_TypeCheck(array, array_type)) return of_numpy(array, writes, what, takes);
  static PyObject* exported = nullptr;
  const Ref made = call(imported(exported, "rondo._arguments", "exported"), "Osi", array, what, writes ? 1 : 0);
  Ref owner = Ref::borrowed(PyTuple_GetItem(made.get(), 0));
  const bool is_numpy = PyObject_TypeCheck(owner.get(), array_type) != 0;
  Buffer buffer = is_numpy ? of_numpy(owner.get(), writes, what, Takes::kPlain)
                           : of_dlpack(Ref::borrowed(owner.get()), writes, what);
  buffer.owner = std::move(owner);
  buffer.on_device = PyTuple_GetItem(made.get(), 1) == Py_True;
  return buffer;
}

// -1 with an exception set, where the object has no such entry.
int64_t first_of(PyObject* object) {
  if (PyObject_TypeCheck(object, array_type)) {
    const auto& array = *reinterpret_cast<const Array*>(object);
    return array.dimensions > 0 ? array.shape[0] : 1;
  }
  static PyObject* function = nullptr;
  return PyLong_AsLongLong(call(imported(function, "rondo._arguments", "first_of"), "O", object).get());
}

// Names are compared first: most callers pass one, and numpy.dtype() costs a call of Python. Raises TypeError.
int dtype_of(PyObject* given) {
  for (size_t i = 0; PyUnicode_Check(given) && i < std::size(kNames); ++i) {
    if (PyUnicode_CompareWithASCIIString(given, kNames[i]) == 0) return static_cast<int>(i);
  }
  static PyObject* dtype = nullptr;
  const int found = dtype_in(call(imported(dtype, "numpy", "dtype"), "O", given).get());
  if (found == kNone) raise(PyExc_TypeError, "dtype %S is none of %s", given, all_names().c_str());
  return found;
}

const char* dtype_name(int dtype) { return kNames[dtype]; }

// Checks the layout of the structures above with an array whose facts are known. A later NumPy with another layout is
// refused at import, and no memory is read in the wrong place.
void find_numpy() {
  static PyObject *type = nullptr, *zeros = nullptr;
  array_type = reinterpret_cast<PyTypeObject*>(imported(type, "numpy", "ndarray"));
  const Ref one = call(imported(zeros, "numpy", "zeros"), "(ii)s", 2, 3, "int16");
  const auto& array = *reinterpret_cast<const Array*>(one.get());
  const bool known = array.dimensions == 2 && array.shape[1] == 3 && array.strides[0] == 6 &&
                     array.flags & kWriteable && array.flags & kContiguous && dtype_in(array.dtype) == RONDO_INT16;
  if (!known) raise(PyExc_ImportError, "this NumPy has arrays of another form than rondo was made for");
}

}  // namespace rondo::python
