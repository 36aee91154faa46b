#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>

#include "python/module/module.h"

namespace rondo::python {

// --- handles

// What ends a handle. RONDO_INVALID: not here, in a callback.
static rondo_result_t ended(rondo_comm_t comm) { return rondo_destroy(comm); }
static rondo_result_t ended(rondo_dist_opt_t optimizer) { return rondo_dist_opt_free(optimizer); }
static rondo_result_t ended(rondo_id_server_t server) { return rondo_id_server_destroy(server); }

template <>
const char* const Capsule<rondo_comm_t>::kName = "communicator's handle";
template <>
const char* const Capsule<rondo_dist_opt_t>::kName = "DistOpt's handle";
template <>
const char* const Capsule<rondo_id_server_t>::kName = "unique id's handle";

template <typename Handle>
void Capsule<Handle>::free(PyObject* capsule) {
  // Communicators are refused whose last reference goes in a callback of a Work, where the library must not wait: the
  // next to go takes them along.
  static std::vector<Handle> refused;
  refused.push_back(in(capsule));
  for (Handle handle : std::exchange(refused, {})) {
    if (without_gil([handle] { return ended(handle); }) == RONDO_INVALID) refused.push_back(handle);
  }
}
template struct Capsule<rondo_comm_t>;

namespace {

// --- a function of rondo.h as one of Python's, by its type: pointers that it writes to become what is returned

// By rondo_op_t.
const char* const kOps[] = {"sum", "product", "min",  "max", "avg",  "band",
                            "bor", "bxor",    "land", "lor", "lxor", "premulsum"};

template <typename T, typename... Some>
constexpr bool is_one_of = (std::is_same_v<T, Some> || ...);
template <typename T>
constexpr bool is_handle = is_one_of<T, rondo_comm_t, rondo_dist_opt_t, rondo_id_server_t>;
// A pointer of these types is written by the function; any other is memory of the caller.
template <typename T>
constexpr bool is_result = is_one_of<T, int*, int64_t*, uint64_t*, size_t*, void**, const char**, rondo_comm_t*,
                                     rondo_id_server_t*, rondo_place_t*>;

// A null handle is None: split() with a negative color.
template <typename T>
Ref to_python(T value) {
  if constexpr (is_handle<T>) return value != nullptr ? Capsule<T>::made(value) : Ref::borrowed(Py_None);
  if constexpr (std::is_integral_v<T>) {
    return Ref::checked(std::is_signed_v<T> ? PyLong_FromLongLong(static_cast<int64_t>(value))
                                            : PyLong_FromUnsignedLongLong(static_cast<uint64_t>(value)));
  }
  if constexpr (std::is_same_v<T, void*>) return Ref::checked(PyLong_FromVoidPtr(value));
  if constexpr (std::is_same_v<T, const char*>) return Ref::checked(PyUnicode_FromString(value));
  if constexpr (std::is_same_v<T, rondo_place_t>) {
    return Ref::checked(Py_BuildValue("(iiii)", value.local_rank, value.local_world, value.node, value.nodes));
  }
}

// The address is a number, or that of an array that the caller keeps. Numbers are trusted: Python's side has made them.
void* address_in(PyObject* place) {
  if (place == Py_None) return nullptr;
  return PyLong_Check(place) ? PyLong_AsVoidPtr(place) : buffer_of(place, false, "array").address;
}

// One parameter: of the next argument of Python's, or, of what the function writes to, none. Python has checked
// numbers.
template <typename T>
struct Value {
  explicit Value(PyObject* const*& next) {
    PyObject* const from = *next++;
    if constexpr (is_handle<T>) {
      value = Capsule<T>::in(from);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = PyFloat_AsDouble(from);
    } else if constexpr (std::is_same_v<T, const char*>) {
      value = PyBytes_AsString(from);
    } else if constexpr (std::is_pointer_v<T>) {
      value = static_cast<T>(address_in(from));
    } else {
      value = static_cast<T>(std::is_signed_v<T> ? PyLong_AsLongLong(from) : PyLong_AsUnsignedLongLong(from));
    }
    if (PyErr_Occurred() != nullptr) throw Raised();
  }
  T get() { return value; }
  void add_to(PyObject*) const {}
  T value;
};
template <typename T>
requires is_result<T>
struct Value<T> {
  explicit Value(PyObject* const*&) {}
  T get() { return &value; }
  void add_to(PyObject* results) const { PyList_Append(results, to_python(value).get()); }
  std::remove_pointer_t<T> value{};
};

// Arguments are read while the interpreter lock is held, the call runs without it. Braces fix the order from left to
// right, which a function's arguments have not. arguments[0] is the handle of every such function.
template <typename... Parameters>
PyObject* apply(rondo_result_t (*function)(Parameters...), PyObject* const* arguments, Py_ssize_t count) {
  constexpr Py_ssize_t kTaken = (Py_ssize_t{!is_result<Parameters>} + ... + 0);
  if (count != kTaken) raise(PyExc_TypeError, "%zd arguments are needed", kTaken);
  const Ref handle = Ref::borrowed(arguments[0]);                            // as long as the call
  std::tuple<Value<Parameters>...> values{Value<Parameters>(arguments)...};  // from left to right
  const Ref results = Ref::checked(PyList_New(0));
  std::apply(
      [&](auto&... each) {
        check(without_gil([&] { return function(each.get()...); }));
        (each.add_to(results.get()), ...);
      },
      values);
  if (PyErr_Occurred() != nullptr) throw Raised();
  const Py_ssize_t written = PyList_Size(results.get());
  return written == 0   ? Py_NewRef(Py_None)
         : written == 1 ? PySequence_GetItem(results.get(), 0)
                        : PyList_AsTuple(results.get());
}

template <auto Function>
PyObject* bound(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&] { return apply(Function, arguments, count); });
}
template <auto Function>
PyMethodDef row(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(bound<Function>)), METH_FASTCALL, nullptr};
}

// --- those that need more

template <typename... Arguments>
void parse(PyObject* from, const char* format, Arguments... to) {
  if (PyArg_ParseTuple(from, format, to...) == 0) throw Raised();
}

// check_array(array): raises what a call that moves it would.
PyObject* check_array(PyObject*, PyObject* array) {
  return guarded([&] {
    buffer_of(array, false, "array", Takes::kEverything);
    return Py_NewRef(Py_None);
  });
}

// buffer_of(array, writes, what): (address, count, dtype, owner, on a GPU) The caller keeps owner as long as it uses
// the address.
PyObject* buffer(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject* array = nullptr;
    int writes = 0;
    const char* what = "array";
    parse(arguments, "Op|s", &array, &writes, &what);
    const Buffer of = buffer_of(array, writes != 0, what);
    return Py_BuildValue("(NKsON)", PyLong_FromVoidPtr(of.address), of.count + 0ULL, dtype_name(of.dtype),
                         of.owner ? of.owner.get() : Py_None, PyBool_FromLong(of.on_device ? 1 : 0));
  });
}
PyObject* dtype(PyObject*, PyObject* given) {
  return guarded([&] { return PyLong_FromLong(dtype_of(given)); });
}
PyObject* op(PyObject*, PyObject* name) {
  return guarded([&] { return PyLong_FromLong(op_of(name)); });
}

// Texts are borrowed from the list's bytes, which the caller keeps.
std::vector<const char*> texts_of(PyObject* list) {
  std::vector<const char*> texts;
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) texts.push_back(PyBytes_AsString(PyList_GetItem(list, i)));
  return PyErr_Occurred() == nullptr ? texts : throw Raised();
}

// Asks a rondo.store.StoreMethods, which is `context`: it returns (result, bytes of the reply or None, number). On the
// thread that joins, which has let go of the interpreter lock. StoreMethods lets no exception out; RONDO_BOOTSTRAP is
// for an answer of another form.
template <typename... Arguments>
rondo_result_t ask(void* context, rondo_reply_t reply, int64_t* number, const char* format, Arguments... arguments) {
  const PyGILState_STATE state = until_the_end(PyGILState_Ensure);
  rondo_result_t result = RONDO_BOOTSTRAP;
  const char* bytes = nullptr;
  Py_ssize_t length = 0;
  long long value = 0;
  PyObject* const answer = PyObject_CallFunction(static_cast<PyObject*>(context), format, arguments...);
  if (answer == nullptr || PyArg_ParseTuple(answer, "iz#L", &result, &bytes, &length, &value) == 0) PyErr_Clear();
  if (bytes != nullptr) rondo_reply_set(reply, bytes, static_cast<size_t>(length));
  if (number != nullptr) *number = value;
  Py_XDECREF(answer);
  PyGILState_Release(state);
  return result;
}
const char* or_empty(const void* bytes) { return bytes != nullptr ? static_cast<const char*>(bytes) : ""; }

// Borrowed: the arguments of join() hold it, and the library uses a store inside of join() alone.
rondo_store_t store_of(PyObject* methods) {
  rondo_store_t store RONDO_STORE_INIT;
  store.context = methods;
  store.put = [](void* on, const char* key, const void* value, size_t bytes, int64_t ms, rondo_reply_t reply) {
    return ask(on, reply, nullptr, "sLsy#", "put", ms, key, or_empty(value), bytes);
  };
  store.get = [](void* on, const char* key, int64_t ms, rondo_reply_t reply) {
    return ask(on, reply, nullptr, "sLs", "get", ms, key);
  };
  store.try_get = [](void* on, const char* key, int64_t ms, rondo_reply_t reply) {
    return ask(on, reply, nullptr, "sLs", "try_get", ms, key);
  };
  store.add = [](void* on, const char* key, int64_t amount, int64_t ms, int64_t* sum, rondo_reply_t reply) {
    return ask(on, reply, sum, "sLsL", "add", ms, key, amount);
  };
  store.compare_set = [](void* on, const char* key, const void* expected, size_t expected_bytes, const void* desired,
                         size_t desired_bytes, int64_t ms, rondo_reply_t reply) {
    return ask(on, reply, nullptr, "sLsy#y#", "compare_set", ms, key, or_empty(expected), expected_bytes,
               or_empty(desired), desired_bytes);
  };
  store.remove = [](void* on, const char* key, int64_t ms, int* removed, rondo_reply_t reply) {
    int64_t number = 0;
    const rondo_result_t result = ask(on, reply, &number, "sLs", "remove", ms, key);
    *removed = static_cast<int>(number);
    return result;
  };
  return store;
}

// join(rank, world, rendezvous, settings, store) It waits without the interpreter lock; a store's methods take it when
// they are asked.
PyObject* join(PyObject*, PyObject* arguments) {
  return guarded([&] {
    rondo_join_options_t options RONDO_JOIN_OPTIONS_INIT;
    PyObject *settings = nullptr, *store = nullptr;
    parse(arguments, "iizO!O", &options.rank, &options.world, &options.rendezvous, &PyList_Type, &settings, &store);
    const std::vector<const char*> texts = texts_of(settings);
    const rondo_store_t functions = store_of(store);
    options.settings = texts.data();
    options.setting_count = texts.size();
    options.store = store != Py_None ? &functions : nullptr;
    rondo_comm_t comm = nullptr;
    check(without_gil([&] { return rondo_join(&comm, &options); }));
    return Capsule<rondo_comm_t>::made(comm).release();
  });
}

// Why the communicator has failed, or None.
PyObject* error(PyObject*, PyObject* handle) {
  return guarded([&] {
    const rondo_result_t result = without_gil([comm = Capsule<rondo_comm_t>::in(handle)] { return rondo_error(comm); });
    return result == RONDO_OK ? Py_NewRef(Py_None) : last_error(result).release();
  });
}

// host, island, cores: addresses of arrays that NumPy holds.
rondo_result_t topology(rondo_comm_t comm, void* host, void* island, void* cores) {
  return rondo_topology(comm, static_cast<int*>(host), static_cast<int*>(island), static_cast<int*>(cores));
}

// sparse_all_reduce(handle, input, output, count, timeout_ms, spars, residual, select, lengths): a
// rondo_sparse_report_t Addresses and lengths have been checked by Python's side.
PyObject* sparse_all_reduce(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *handle = nullptr, *input = nullptr, *output = nullptr, *residual = nullptr, *lengths = nullptr;
    unsigned long long count = 0;
    rondo_sparse_options_t options RONDO_SPARSE_OPTIONS_INIT;
    parse(arguments, "OOOKLdOiO", &handle, &input, &output, &count, &options.timeout_ms, &options.spars, &residual,
          &options.select, &lengths);
    const std::vector<uint64_t> tensors = numbers_of(lengths);
    options.residual = static_cast<float*>(address_in(residual));
    options.tensors = tensors.empty() ? nullptr : tensors.data();
    options.tensor_count = tensors.size();
    rondo_comm_t comm = Capsule<rondo_comm_t>::in(handle);
    rondo_sparse_report_t report{};
    check(without_gil([&, from = static_cast<float*>(address_in(input)), to = static_cast<float*>(address_in(output))] {
      return rondo_sparse_all_reduce(comm, from, to, count, &options, &report);
    }));
    return Py_BuildValue("(KKKi)", report.selected, report.total, report.bytes_sent, report.route);
  });
}

// dist_opt_create(handle, names, addresses, counts, {field: number}); other fields have the library's defaults. The
// parameters' memory belongs to arrays that the caller keeps as long as the DistOpt.
PyObject* dist_opt_create(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *handle = nullptr, *name_list = nullptr, *address_list = nullptr, *count_list = nullptr, *fields = nullptr;
    parse(arguments, "OOOOO", &handle, &name_list, &address_list, &count_list, &fields);
    rondo_dist_opt_options_t options;
    check(rondo_dist_opt_defaults(&options));
    const char* const names[] = {"clip",        "outer_rate",      "outer_momentum", "bucket_bytes", "partition_bytes",
                                 "every",       "exchange",        "residual",       "nesterov",     "outer_wire",
                                 "outer_delay", "outer_fragments", nullptr};
    if (PyArg_ParseTupleAndKeywords(Ref::checked(PyTuple_New(0)).get(), fields, "|dddKKKippiKK",
                                    const_cast<char**>(names), &options.clip, &options.outer_rate,
                                    &options.outer_momentum, &options.bucket_bytes, &options.partition_bytes,
                                    &options.every, &options.exchange, &options.residual, &options.nesterov,
                                    &options.outer_wire, &options.outer_delay, &options.outer_fragments) == 0) {
      throw Raised();
    }
    const std::vector<const char*> parameter_names = texts_of(name_list);
    const std::vector<uint64_t> addresses = numbers_of(address_list), counts = numbers_of(count_list);
    std::vector<rondo_parameter_t> parameters;
    for (size_t i = 0; i < counts.size(); ++i) {
      parameters.push_back({parameter_names[i], reinterpret_cast<float*>(addresses[i]), counts[i]});
    }
    rondo_comm_t comm = Capsule<rondo_comm_t>::in(handle);
    rondo_dist_opt_t made = nullptr;
    check(without_gil(
        [&] { return rondo_dist_opt_create(&made, comm, parameters.data(), parameters.size(), &options); }));
    return Capsule<rondo_dist_opt_t>::made(made).release();
  });
}

// row<>: a function of rondo.h, bound by its type. The others have code above.
PyMethodDef methods[] = {row<rondo_authenticated>("authenticated"),
                         row<rondo_rank>("rank"),
                         row<rondo_size>("size"),
                         row<rondo_place>("place"),
                         row<rondo_id_server_create>("id_server"),
                         row<rondo_attach_device>("attach_device"),
                         row<rondo_algorithm_for>("algorithm_for"),
                         row<rondo_batch_begin>("batch_begin"),
                         row<rondo_batch_end>("batch_end"),
                         row<rondo_batch_abandon>("batch_abandon"),
                         row<rondo_allocate>("allocate"),
                         row<rondo_deallocate>("deallocate"),
                         row<rondo_split>("split"),
                         row<rondo_abort>("abort"),
                         row<rondo_trace_start>("trace_start"),
                         row<rondo_trace_stop>("trace_stop"),
                         row<rondo_close>("close"),
                         row<rondo_dist_opt_place>("dist_opt_place"),
                         row<rondo_dist_opt_ready>("dist_opt_ready"),
                         row<rondo_dist_opt_reduce>("dist_opt_reduce"),
                         row<rondo_dist_opt_average>("dist_opt_average"),
                         row<rondo_dist_opt_wait>("dist_opt_wait"),
                         row<rondo_dist_opt_regroup>("dist_opt_regroup"),
                         row<rondo_dist_opt_counts>("dist_opt_counts"),
                         row<rondo_dist_opt_save>("dist_opt_save"),
                         row<rondo_dist_opt_load>("dist_opt_load"),
                         row<topology>("topology"),
                         row<rondo_metrics>("metrics"),
                         row<rondo_new_group>("new_group"),
                         row<rondo_dup>("dup"),
                         row<rondo_shrink>("shrink"),
                         row<rondo_grow>("grow"),
                         row<rondo_newcomers>("newcomers"),
                         row<rondo_epoch>("epoch"),
                         row<rondo_commit>("commit"),
                         row<rondo_committed>("committed"),
                         {"buffer_of", buffer, METH_VARARGS, nullptr},
                         {"check_array", check_array, METH_O, nullptr},
                         {"dtype_of", dtype, METH_O, nullptr},
                         {"op_of", op, METH_O, nullptr},
                         {"join", join, METH_VARARGS, nullptr},
                         {"error", error, METH_O, nullptr},
                         {"sparse_all_reduce", sparse_all_reduce, METH_VARARGS, nullptr},
                         {"dist_opt_create", dist_opt_create, METH_VARARGS, nullptr},
                         {"lightgbm_network", lightgbm_network, METH_VARARGS, nullptr},
                         {"method", method, METH_VARARGS, nullptr},
                         {"last_error", failure_of, METH_O, nullptr},
                         {"stop_asking", stop_asking, METH_NOARGS, nullptr},
                         {}};

}  // namespace

// Literals in a program's text are interned by Python: comparing addresses finds most names.
int op_of(PyObject* name) {
  static PyObject* interned[std::size(kOps)];
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (interned[i] == nullptr) interned[i] = Ref::checked(PyUnicode_InternFromString(kOps[i])).release();
    if (name == interned[i]) return static_cast<int>(i);
  }
  static PyObject* user_op = nullptr;
  if (PyObject_IsInstance(name, imported(user_op, "rondo.user_op", "UserOp")) == 1) return RONDO_USER;
  std::string all;
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (PyUnicode_Check(name) && PyUnicode_Compare(name, interned[i]) == 0) return static_cast<int>(i);
    all += (i == 0 ? "" : ", ") + std::string(kOps[i]);
  }
  // NumPy's names, and its functions.
  static PyObject* known = nullptr;
  const Ref meant = call(imported(known, "rondo._arguments", "op_meant"), "O", name);
  if (meant.get() != Py_None) return op_of(meant.get());
  raise(PyExc_ValueError, "op %R is none of %s, and no rondo.UserOp", name, all.c_str());
}

std::vector<uint64_t> numbers_of(PyObject* list) {
  std::vector<uint64_t> numbers;
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i)
    numbers.push_back(PyLong_AsUnsignedLongLong(PyList_GetItem(list, i)));
  return PyErr_Occurred() == nullptr ? numbers : throw Raised();
}

void add_functions(PyObject* module) {
  if (PyModule_AddFunctions(module, methods) != 0) throw Raised();
}

}  // namespace rondo::python
