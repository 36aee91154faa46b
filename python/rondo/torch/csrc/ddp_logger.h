#pragma once

namespace rondo_torch {

// From now on the data that DDP logs (DistributedDataParallel._get_ddp_logging_data()) name this backend, where torch
// writes "custom" for every backend of an extension. It takes the process's only place for a logger of DDP, which is
// empty unless a program has set one by c10::SetPyTorchDDPUsageLogger. Calling it again changes nothing.
void name_backend_in_ddp_logs();

}  // namespace rondo_torch
