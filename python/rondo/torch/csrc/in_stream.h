#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace rondo_torch {

// The stream of a GPU that a call of torch takes its place in, while this object lives; of a call on the CPU nothing.
// By torch's rules: a call that the caller waits for is in the current stream of its tensors' device; one that gives a
// Work in a stream of the group's, behind what the current one has now. That stream is the current one meanwhile:
// copies of tensors are in it, too. One of a thread at a time counts, the first.
class InStream {
 public:
  // beside: the group's stream; std::nullopt: the current one.
  InStream(const at::Device& device, const std::optional<c10::Stream>& beside);
  ~InStream();
  InStream(const InStream&) = delete;
  InStream& operator=(const InStream&) = delete;

  // This thread's stream; std::nullopt: its call is on the CPU.
  static const std::optional<c10::Stream>& here();
  // CUDA's handle of the stream.
  static void* handle(const c10::Stream& stream) { return native(stream); }
  // A stream of torch's pool.
  static c10::Stream new_stream(const at::Device& device);
  // The memory of the tensors, which other streams may have made, is in use until this thread's stream has come here.
  static void keep(at::TensorList tensors);

 private:
  // torch 2.9 has no such function.
  template <typename Stream>
  static void* native(const Stream& stream) {
    if constexpr (requires { stream.native_handle(); }) return stream.native_handle();
    TORCH_CHECK(false, "rondo: tensors on ", stream.device(), " need torch 2.10 or newer");
  }

  c10::OptionalStreamGuard guard_;
};

// The end of what a stream has now, for other streams and for the host.
class StreamEnd {
 public:
  explicit StreamEnd(const c10::Stream& stream);

  const c10::Stream& stream() const { return stream_; }
  bool passed() const { return event_.query(); }
  // What the other stream gets from now on comes after it. The host does not wait.
  void hold(const c10::Stream& other) const { event_.block(other); }
  void hold_current_stream() const;

 private:
  c10::Stream stream_;
  c10::Event event_;
};

}  // namespace rondo_torch
