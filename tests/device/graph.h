#pragma once

#include <functional>

#include "tests/support/fake_cuda/mirror.h"

namespace rondo::testing {

// What has been captured in a stream: a graph of a GPU, or what the fake driver keeps with the stream. One thread,
// whose current device is the stream's.
class Graph {
 public:
  explicit Graph(DeviceStream stream) : stream_(stream) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Throws where the capture is spoilt.
  void record(const std::function<void()>& calls);
  void replay(DeviceStream stream);
  void destroy();

 private:
  DeviceStream const stream_;
  cuda::Graph graph_ = nullptr;  // of a GPU, as what can be launched
  void* launched_ = nullptr;
};

}  // namespace rondo::testing
