#include "csrc/errors.h"

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

namespace rondo_torch {

namespace {

// The ranks of this thread's last failure: " (ranks 1, 2)", or "".
std::string blamed_ranks() {
  std::vector<int> ranks(rondo_last_error_ranks(nullptr, 0));
  if (ranks.empty()) return "";
  rondo_last_error_ranks(ranks.data(), ranks.size());
  std::string text = ranks.size() == 1 ? " (rank " : " (ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text + ")";
}

// The package's interrupt check (rondo/errors.py) keeps what the signal's handler raised.
std::exception_ptr raised_by_signal() {
  pybind11::gil_scoped_acquire gil;
  pybind11::object error = pybind11::module_::import("rondo.errors").attr("last_error")(int{RONDO_INTERRUPTED});
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  return std::make_exception_ptr(pybind11::error_already_set());
}

}  // namespace

std::exception_ptr failure(rondo_result_t code) {
  if (code == RONDO_INTERRUPTED) return raised_by_signal();
  const std::string text = rondo_last_error();
  if (code == RONDO_INVALID) {
    return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, __LINE__}, "rondo: " + text));
  }
  // Programs look for this word in the texts of torch's own backends.
  const char* word = code == RONDO_TIMEOUT ? ": the timeout passed: " : ": ";
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, __LINE__}, std::string("rondo ") + rondo_result_name(code) + blamed_ranks() + word + text));
}

void check(rondo_result_t code) {
  if (code != RONDO_OK) [[unlikely]]
    std::rethrow_exception(failure(code));
}

void fail(const std::string& text) { throw c10::DistBackendError({__func__, __FILE__, __LINE__}, "rondo: " + text); }

}  // namespace rondo_torch
