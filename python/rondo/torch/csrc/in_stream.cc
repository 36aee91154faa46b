#include "csrc/in_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace rondo_torch {

namespace {

thread_local std::optional<c10::Stream> stream_here;

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

InStream::InStream(const at::Device& device, const std::optional<c10::Stream>& beside) {
  if (device.is_cpu() || stream_here) return;
  const c10::Stream current = current_stream(device);
  if (beside) StreamEnd(current).hold(*beside);
  guard_.reset_stream(beside.value_or(current));
  stream_here = guard_.current_stream();
}

InStream::~InStream() {
  if (guard_.current_stream()) stream_here.reset();
}

const std::optional<c10::Stream>& InStream::here() { return stream_here; }

c10::Stream InStream::new_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// record_stream(): torch's allocator does not give the memory to another tensor before the stream has passed this
// point, though the caller may drop the tensor now.
void InStream::keep(at::TensorList tensors) {
  if (!stream_here) return;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.has_storage()) tensor.record_stream(*stream_here);
  }
}

StreamEnd::StreamEnd(const c10::Stream& stream) : stream_(stream), event_(stream.device_type()) {
  event_.record(stream_);
}

void StreamEnd::hold_current_stream() const { hold(current_stream(stream_.device())); }

}  // namespace rondo_torch
