// A training step on a stream: a kernel computes gradients, the ranks average them, a kernel updates the weights, and
// the host waits once, at the end. Needs GPUs; ranks may share one.
//   rondo-run -n 2 bazel-bin/examples/gpu_step
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <rondo/communicator.h>

namespace {

constexpr int kWeights = 1 << 20;
constexpr int kSteps = 100;
constexpr float kRate = 0.1f;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// The loss of a rank is the squared distance to its own target, so that the mean of all is nearest to all of them.
__global__ void compute_gradients(const float* weights, float* gradients, float target) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kWeights) gradients[i] = 2 * (weights[i] - target);
}

__global__ void update(float* weights, const float* gradients) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kWeights) weights[i] -= kRate * gradients[i];
}

int run(rondo::Communicator& group) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices));
  check(cudaSetDevice(group.place().local_rank % devices));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* weights = nullptr;
  check(cudaMalloc(&weights, kWeights * sizeof(float)));
  check(cudaMemsetAsync(weights, 0, kWeights * sizeof(float), stream));
  // All ranks map it, where their GPUs can: averaged without a copy.
  auto* gradients = static_cast<float*>(group.allocate(kWeights * sizeof(float), rondo::Memory::kDevice));

  constexpr int kThreads = 256, kBlocks = (kWeights + kThreads - 1) / kThreads;
  for (int step = 0; step < kSteps; ++step) {
    compute_gradients<<<kBlocks, kThreads, 0, stream>>>(weights, gradients, static_cast<float>(group.rank()));
    group.all_reduce(gradients, gradients, kWeights, rondo::DType::kFloat32, rondo::Op::kAverage, {.stream = stream});
    update<<<kBlocks, kThreads, 0, stream>>>(weights, gradients);
  }
  std::vector<float> found(kWeights);
  check(cudaMemcpyAsync(found.data(), weights, kWeights * sizeof(float), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  group.barrier();  // throws if a step failed on any rank

  const float expected = static_cast<float>(group.size() - 1) / 2;
  for (const float weight : found) {
    if (weight < expected - 0.001f || weight > expected + 0.001f) {
      std::fprintf(stderr, "rank %d: a weight is %g instead of %g\n", group.rank(), weight, expected);
      return 1;
    }
  }
  std::printf("rank %d of %d: %d steps, all weights %g\n", group.rank(), group.size(), kSteps, found[0]);
  group.deallocate(gradients);
  check(cudaFree(weights));
  check(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace

int main() {
  try {
    rondo::Communicator group = rondo::Communicator::join();
    return run(group);
  } catch (const rondo::Exception& error) {
    std::fprintf(stderr, "%s: %s\n", rondo::error_code_name(error.code()), error.what());
    return 1;
  }
}
