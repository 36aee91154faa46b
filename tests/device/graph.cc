#include "tests/device/graph.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace rondo::testing {
namespace {

// Functions of a GPU's driver, which the library does not need.
struct Driver {
  cuda::Result (*begin_capture)(cuda::Stream stream, cuda::CaptureMode mode);
  cuda::Result (*end_capture)(cuda::Stream stream, cuda::Graph* graph);
  cuda::Result (*instantiate)(void** launched, cuda::Graph graph, unsigned long long flags);
  cuda::Result (*launch)(void* launched, cuda::Stream stream);
  cuda::Result (*destroy_launched)(void* launched);
  cuda::Result (*destroy)(cuda::Graph graph);

  Driver() {
    find("cuStreamBeginCapture", 10010, begin_capture);
    find("cuStreamEndCapture", 10000, end_capture);
    find("cuGraphInstantiateWithFlags", 11040, instantiate);
    find("cuGraphLaunch", 10000, launch);
    find("cuGraphExecDestroy", 10000, destroy_launched);
    find("cuGraphDestroy", 10000, destroy);
  }

 private:
  template <class Function>
  static void find(const char* name, int version, Function& function) {
    const auto get = reinterpret_cast<cuda::GetProcAddress>(find_function(cuda::kGetProcAddress));
    void* found = nullptr;
    int how = 0;
    if (get == nullptr || get(name, &found, version, 0, &how) != 0 || found == nullptr) {
      throw std::runtime_error(std::string("the driver has no ") + name);
    }
    function = reinterpret_cast<Function>(found);
  }
};

const Driver& driver() {
  static const Driver found;
  return found;
}

void check(cuda::Result result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + " failed: error " + std::to_string(result));
}

}  // namespace

Graph::~Graph() {
  if (graph_ != nullptr) destroy();
}

void Graph::record(const std::function<void()>& calls) {
  if (const auto capture = fake_function<bool(void*, int)>("fake_cuda_capture")) {
    capture(stream_, cuda::kCaptureGlobal);
    calls();
    if (!capture(stream_, -1)) throw std::runtime_error("the capture is spoilt");
    return;
  }
  check(driver().begin_capture(stream_, cuda::kCaptureGlobal), "beginning a capture");
  calls();
  check(driver().end_capture(stream_, &graph_), "ending a capture");
  check(driver().instantiate(&launched_, graph_, 0), "making a graph of it");
}

void Graph::replay(DeviceStream stream) {
  if (const auto replay = fake_function<void(void*, void*)>("fake_cuda_replay")) return replay(stream_, stream);
  check(driver().launch(launched_, stream), "launching a graph");
}

void Graph::destroy() {
  if (const auto destroy = fake_function<void(void*)>("fake_cuda_destroy_graph")) return destroy(stream_);
  if (launched_ != nullptr) driver().destroy_launched(std::exchange(launched_, nullptr));
  if (graph_ != nullptr) driver().destroy(std::exchange(graph_, nullptr));
}

}  // namespace rondo::testing
