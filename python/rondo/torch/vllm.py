"""The communicator of vLLM's groups on the platform of vllm_platform.py."""

from __future__ import annotations

from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase

from rondo.torch.inference import CpuCommunicator


class Communicator(CpuCommunicator, DeviceCommunicatorBase):
    """What vLLM makes for each of its groups; device_group is of the backend "rondo"."""

    supports_tensor_dict = False  # parts of a pipeline send their tensors one by one

    def __init__(self, cpu_group, device=None, device_group=None, unique_name="", **options):
        DeviceCommunicatorBase.__init__(self, cpu_group, device, device_group, unique_name, **options)
        CpuCommunicator.__init__(self, cpu_group, device, device_group, unique_name)
        if self.use_all2all:
            from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager

            self.all2all_manager = AgRsAll2AllManager(self.cpu_group)
