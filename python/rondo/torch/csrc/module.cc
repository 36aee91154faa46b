// The module rondo_torch: makes backends, and ends them with the process; registered memory.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "csrc/backend.h"
#include "csrc/registered.h"

namespace {

// With the GIL released: it waits for the other ranks.
c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         std::chrono::milliseconds timeout, std::string name,
                                         std::vector<int64_t> global_ranks) {
  return rondo_torch::RondoBackend::create(store, {rank, size, timeout, std::move(name), std::move(global_ranks)});
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace py = pybind11;
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
             py::arg("global_ranks"), py::call_guard<py::gil_scoped_release>());
  module.def("leave", &rondo_torch::RondoBackend::leave_all, py::arg("exception"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "empty",
      [](const std::vector<int64_t>& shape, const at::ScalarType& type, const std::string& group) {
        return rondo_torch::registered_empty(shape, type, group);
      },
      py::arg("shape"), py::arg("dtype"), py::arg("group"), py::call_guard<py::gil_scoped_release>());
  py::class_<rondo_torch::RegisteredScope>(module, "RegisteredScope")
      .def(py::init<const std::string&, size_t>(), py::arg("group"), py::arg("bytes"),
           py::call_guard<py::gil_scoped_release>())
      .def("end", &rondo_torch::RegisteredScope::end);
}
