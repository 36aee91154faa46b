#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "python/module/row.h"

namespace rondo::python {

// Raises for what is no whole number, or none of C's int. what: the parameter. The slow half of whole_number(): for
// NumPy's numbers, and for what is refused.
int checked_number(PyObject* value, const char* what, int rank);
inline int whole_number(PyObject* value, const char* what, int rank) {
  int overflow = 0;
  const long number = PyLong_CheckExact(value) ? PyLong_AsLongAndOverflow(value, &overflow) : -1;
  const bool fits = PyLong_CheckExact(value) && overflow == 0 && number == static_cast<int>(number);
  return fits ? static_cast<int>(number) : checked_number(value, what, rank);
}

// A call's rondo_options_t. It must live as long as the call: the library reads texts and functions here. For a Work,
// what outlives the call is kept().
class Options {
 public:
  // count: elements of the call's input, for `wire`. Raises.
  Options(const Given& given, int rank, uint64_t purpose, uint64_t count) : used_(purpose != 0) {
    for (const Parameter each : std::initializer_list<Parameter>{"timeout", "algorithm", "scalar", "wire", "stream"})
      used_ = used_ || given.has(each);
    options_.purpose = purpose;
    if (given.says("synchronous")) options_.flags |= RONDO_SYNCHRONOUS;
    if (given.says("truncate")) options_.flags |= RONDO_TRUNCATE;
    if (given.says("recoverable")) options_.flags |= RONDO_RECOVERABLE;
    used_ = used_ || options_.flags != 0;
    if (used_) read(given, rank, count);
  }
  const rondo_options_t* get() const { return used_ ? &options_ : nullptr; }
  PyObject* kept() const { return kept_ ? kept_.get() : Py_None; }  // until the call is over
  // The op is a UserOp, here by its function.
  void fold_by(PyObject* op, int dtype, PyObject* handle);
  // dtype: of the parts.
  void multiply_complex(int dtype);

 private:
  void read(const Given& given, int rank, uint64_t count);

  rondo_options_t options_ RONDO_OPTIONS_INIT;
  bool used_;  // false: the library's defaults, and a null pointer
  std::string algorithm_;
  Ref kept_;
};

}  // namespace rondo::python
