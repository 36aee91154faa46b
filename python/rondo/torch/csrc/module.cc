// What the package calls: makes backends, and ends them with the process; registered memory. Operators of torch, whose
// names begin with "_"; they run without Python's lock.

#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/backend.h"
#include "csrc/registered.h"

namespace rondo_torch {

namespace {

// torch passes no store and no backend to an operator: `meeting`, a group without backends, brings the store, and takes
// the backend.
void create(const c10::intrusive_ptr<c10d::ProcessGroup>& meeting, int64_t timeout_ms, std::string name,
            std::vector<int64_t> global_ranks, bool is_default, bool waits) {
  const GroupDescription group{meeting->getRank(),
                               meeting->getSize(),
                               std::chrono::milliseconds(timeout_ms),
                               std::move(name),
                               std::move(global_ranks),
                               is_default,
                               waits};
  meeting->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      RondoBackend::create(meeting->getStore(), group));
}

at::Tensor empty(c10::ArrayRef<int64_t> shape, at::ScalarType type, c10::string_view group) {
  return registered_empty(shape.vec(), type, std::string(group));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(rondo, library) {
  library.def(
      "_create(__torch__.torch.classes.c10d.ProcessGroup meeting, int timeout_ms, str name, int[] global_ranks, "
      "bool is_default, bool waits) -> ()",
      &create);
  library.def("_leave(str exception) -> ()", [](std::string exception) { RondoBackend::leave_all(exception); });
  library.def("_is_of_others(str failure) -> bool", [](std::string failure) { return is_of_others(failure); });
  library.def("_lost(str group_name) -> int[]", [](std::string name) { return RondoBackend::named(name)->lost(); });
  library.def("_recoverable(str group_name, bool recoverable) -> ()",
              [](std::string name, bool recoverable) { RondoBackend::named(name)->set_recoverable(recoverable); });
  library.def("_empty(int[] shape, ScalarType dtype, str group_name) -> Tensor", &empty);
  library.class_<RegisteredScope>("RegisteredScope")
      .def(torch::init<std::string, int64_t>())
      .def("end", &RegisteredScope::end);
  // Defined in Python.
  library.def("_raise_from_handler() -> ()");
}

}  // namespace rondo_torch
