#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "python/module/module.h"

namespace rondo::python {

// The parameters of all methods that are written here. A new parameter of a method in rondo/calls.py must be added
// here: Row::declare() refuses others at import.
constexpr const char* kParameters[] = {"array",        "op",       "root",          "out",       "dest",
                                       "source",       "tag",      "timeout",       "scalar",    "algorithm",
                                       "wire",         "stream",   "needed",        "result",    "collective",
                                       "input_counts", "async_op", "output_counts", "matched",   "truncate",
                                       "synchronous",  "copy",     "recoverable",   "only_check"};
constexpr size_t kParameterCount = std::size(kParameters);

// One of them, by its name.
class Parameter {
 public:
  consteval Parameter(const char* name) : index_(0) {
    while (kParameters[index_] != std::string_view(name)) ++index_;  // behind the last: an error of compilation
  }
  const char* name() const { return kParameters[index_]; }
  size_t index() const { return index_; }

 private:
  size_t index_;
};

class Request;
using Body = PyObject* (*)(Request&);

// A function of Python's (rondo/calls.py) whose body is here. References are kept for ever. It is written at import
// alone, under the interpreter lock, and read by calls.
struct Row {
  // By index of kParameters; NULL: needed; None where there is no such parameter. Each call copies them.
  alignas(64) std::array<PyObject*, kParameterCount> defaults{};
  std::array<bool, kParameterCount> declares{};  // by index, too
  std::array<uint8_t, kParameterCount> order{};  // as declared: indices
  Py_ssize_t positional = 0, count = 0;          // without self
  Body body = nullptr;
  bool starts = false;  // returns a Work, whatever its arguments

  // What a collective of equal blocks is.
  rondo_collective_t collective = 0;
  int blocks_in = 0, blocks_out = 0;  // 1: its input, its output has a block for each rank
  int root_sends = 0, root_gets = 0;  // 1: the root alone has an input, an output
  PyObject* new_out = nullptr;        // makes an output of `array` and the size; None: it is in place

  std::array<PyObject*, kParameterCount> names{};  // interned, in the order of `order`
  std::string name;
  PyObject* declared = nullptr;

  // parameters: a tuple of their names; values: {name: default}.
  void declare(Py_ssize_t positional_count, PyObject* parameters, PyObject* values);
  bool takes(Parameter which) const { return declares[which.index()]; }
};

// The arguments of one call, by Parameter; borrowed. An array holds them, no tuple or dictionary: parsing by Python's
// functions would show in small calls.
class Given {
 public:
  // An argument given twice by position and name is refused, since the search begins behind the positional ones.
  Given(const Row& of, PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names)
      : values_(of.defaults) {
    const Py_ssize_t named = names != nullptr ? PyTuple_Size(names) : 0;
    bool fits = positional <= of.positional;
    for (Py_ssize_t i = 0; fits && i < positional; ++i) values_[of.order[i]] = arguments[i];
    for (Py_ssize_t i = 0; fits && i < named; ++i) {
      const auto end = of.names.begin() + of.count;
      PyObject* const name = PyTuple_GetItem(names, i);
      auto found = std::find(of.names.begin() + positional, end, name);  // almost always: names are interned
      if (found == end) {
        found = std::find_if(of.names.begin() + positional, end,
                             [&](PyObject* each) { return PyUnicode_Compare(each, name) == 0; });
      }
      fits = found != end;
      if (fits) values_[of.order[found - of.names.begin()]] = arguments[positional + i];
    }
    if (!fits || std::find(values_.begin(), values_.end(), nullptr) != values_.end()) {
      refuse(of, self, arguments, positional, names);
    }
  }
  PyObject* operator[](Parameter which) const { return values_[which.index()]; }
  bool has(Parameter which) const { return (*this)[which] != Py_None; }
  // Raises for a value that is neither true nor false, such as an array. None is false.
  bool says(Parameter which) const {
    PyObject* const value = (*this)[which];
    if (value == Py_None || value == Py_False) return false;
    const int truth = PyObject_IsTrue(value);
    return truth >= 0 ? truth != 0 : throw Raised();
  }

 private:
  // Calls the declared function, whose TypeError says what is wrong as Python would.
  [[noreturn]] static void refuse(const Row& of, PyObject* self, PyObject* const* arguments, Py_ssize_t positional,
                                  PyObject* names);

  std::array<PyObject*, kParameterCount> values_;
};

}  // namespace rondo::python
