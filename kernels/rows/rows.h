#pragma once

#include "kernels/kernel_table.h"

// The rows of one instruction set, each in the file of its width. RONDO_KERNEL_SET (BUILD): baseline, avx2 or avx512.
namespace rondo::RONDO_KERNEL_SET {

// table.cc puts these together. A compile of its own for each file, so that none takes long.
extern const KernelRow kInt8;
extern const KernelRow kUint8;
extern const KernelRow kInt16;
extern const KernelRow kUint16;
extern const KernelRow kInt32;
extern const KernelRow kUint32;
extern const KernelRow kInt64;
extern const KernelRow kUint64;
extern const KernelRow kFloat16;
extern const KernelRow kBfloat16;
extern const KernelRow kFloat32;
extern const KernelRow kFloat64;
extern const KernelRow kBool;
extern const KernelRow kFloat8E4M3;
extern const KernelRow kFloat8E5M2;
extern const WireRow kWire;
extern const PackKernels kPackBfloat16;
extern const PackKernels kPackFloat32;
Selected select_by_magnitude(const SelectCall& call);

}  // namespace rondo::RONDO_KERNEL_SET
