#include "tools/launcher/relay.h"

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace rondo::launcher {

void Relay::add(Descriptor& standard_output, Descriptor& standard_error, const std::string& prefix) {
  streams_.push_back(Stream{&standard_output, &output_, LinePrefix(prefix)});
  streams_.push_back(Stream{&standard_error, &error_, LinePrefix(prefix)});
}

// A full output stops reading from its streams: their writers wait in their pipes.
void Relay::append_entries(std::vector<pollfd>& entries) const {
  for (const Output* output : {&output_, &error_}) {
    entries.push_back({output->wants_to_write() ? output->fd() : -1, POLLOUT, 0});
  }
  for (const Stream& stream : streams_) entries.push_back({stream.to->full() ? -1 : stream.from->get(), POLLIN, 0});
}

void Relay::read(const std::vector<pollfd>& entries, size_t first) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (entries[first + 2 + i].revents != 0) read_stream(streams_[i]);
  }
}

// One read a turn: a rank that writes without end does not keep the others' lines back.
void Relay::read_stream(Stream& stream) {
  char bytes[16 * 1024];
  const ssize_t n = ::read(stream.from->get(), bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    stream.lines.finish(stream.to->pending());
    stream.from->reset();
    return;
  }
  std::string& pending = stream.to->pending();
  size_t begin = pending.size();
  stream.lines.append(std::string_view(bytes, static_cast<size_t>(n)), pending);
  // A marked line is a message to this program and no output: it is cut out.
  while (!marker_.empty() && begin < pending.size()) {
    const size_t end = pending.find('\n', begin) + 1;
    if (pending.compare(begin, marker_.size(), marker_) == 0) {
      marked_.push_back(pending.substr(begin + marker_.size(), end - 1 - begin - marker_.size()));
      pending.erase(begin, end - begin);
    } else {
      begin = end;
    }
  }
  if (drain_until_) begin_drain();
}

void Relay::write() {
  flush(output_, "standard output");
  flush(error_, "standard error");
}

// Where this program's output has lost its reader, the children lose theirs: their next write there fails with SIGPIPE.
void Relay::flush(Output& output, const char* name) {
  // A reader that is behind: the children's pipes may have been left alone meanwhile, so their second begins now.
  if (drain_until_ && output.wants_to_write()) begin_drain();
  output.write();
  if (const int number = output.take_problem(); number != 0) {
    say(fmt::format("{}: {}; what cannot be written there is lost, and the ranks go on", name, ::strerror(number)));
  }
  if (!output.broken()) return;
  for (Stream& stream : streams_) {
    if (stream.to == &output) stream.from->reset();
  }
}

// A process that a rank has left may hold a pipe for ever.
void Relay::check_drain(Clock::time_point now) {
  if (!drain_until_ || now < *drain_until_) return;
  drain_until_ = now + kDrain;
  for (Stream& stream : streams_) {
    if (stream.from->valid()) stream.lines.finish(stream.to->pending());
    stream.from->reset();
  }
}

bool Relay::drained() const {
  const bool open = std::any_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.from->valid(); });
  return !open && !output_.wants_to_write() && !error_.wants_to_write();
}

}  // namespace rondo::launcher
