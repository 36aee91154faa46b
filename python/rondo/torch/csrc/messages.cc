// send and recv.

#include "csrc/run.h"

namespace rondo_torch {

using c10d::OpType;

// A message ends with torch's default timeout of the group: send and recv have none of their own.
constexpr std::chrono::milliseconds kGroupTimeout{-1};

WorkPointer RondoBackend::send(Tensors& tensors, int to, int tag) {
  at::Tensor& tensor = only(tensors, "send");
  const InStream place = place_of(tensor, true);
  check_tensor(tensor, "send");
  check_root(to, "send");
  const Elements elements = elements_moved(tensor.scalar_type());
  const Block block(tensor, Access::kRead, "send");
  const rondo_options_t limits = call_options(kGroupTimeout);
  auto start = [&](rondo_work_t* work) {
    return rondo_send_async(comm_, block.data(), block.items() * elements.per_item, elements.dtype, to, tag, &limits,
                            work);
  };
  return run({OpType::SEND, "rondo:send", {}, [block] {}}, tensors, true, start, Kind::kMessage);
}

WorkPointer RondoBackend::recv(Tensors& tensors, int from, int tag) {
  at::Tensor& tensor = only(tensors, "recv");
  const InStream place = place_of(tensor, true);
  check_tensor(tensor, "recv");
  check_root(from, "recv");
  return receive(tensor, from, tag, OpType::RECV, "rondo:recv");
}

WorkPointer RondoBackend::recvAnysource(Tensors& tensors, int tag) {
  at::Tensor& tensor = only(tensors, "recv");
  const InStream place = place_of(tensor, true);
  check_tensor(tensor, "recv");
  return receive(tensor, RONDO_ANY_SOURCE, tag, OpType::RECVANYSOURCE, "rondo:recvAnySource");
}

WorkPointer RondoBackend::receive(at::Tensor& tensor, int from, int tag, OpType type, const char* title) {
  const Elements elements = elements_moved(tensor.scalar_type());
  // What a shorter message leaves stays as it was.
  const Block block(tensor, Access::kUpdate, "recv");
  const rondo_options_t limits = call_options(kGroupTimeout);
  auto start = [&](rondo_work_t* work) {
    return rondo_recv_async(comm_, block.data(), block.items() * elements.per_item, elements.dtype, from, tag, &limits,
                            work);
  };
  return run({type, title, {tensor}, [block] { block.write_back(); }}, {tensor}, true, start, Kind::kMessage);
}

}  // namespace rondo_torch
