#pragma once

#include <cstddef>
#include <string>

namespace rondo {

// What only the processes of a job know. A default one is none: every peer that speaks the protocol is believed.
struct Secret {
  enum class Source {
    kNone,        // RONDO_INSECURE=1, or a job of one process
    kUser,        // of this user on this machine
    kFile,        // RONDO_SECRET_FILE
    kDescriptor,  // RONDO_SECRET_FD
    kUniqueId,
  };
  Source source = Source::kNone;
  std::string bytes;  // never logged, sent, or part of a message
  std::string name;   // for messages: "RONDO_SECRET_FILE=/path"

  bool exists() const { return source != Source::kNone; }
  // Processes of other machines can have it.
  bool spans_hosts() const { return exists() && source != Source::kUser; }
};

inline constexpr size_t kLeastSecretBytes = 16;
inline constexpr size_t kMostSecretBytes = 4096;

}  // namespace rondo
