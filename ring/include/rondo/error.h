#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/export.h>

namespace rondo {

// What went wrong, by what the caller can do about it. The values are those of the C API (rondo_result_t).
enum class ErrorCode : int {
  kOk = 0,
  kInvalid = 1,        // the caller's arguments; nothing was done
  kMismatch = 2,       // ranks made different calls; the message shows both
  kTimeout = 3,        // a deadline passed; `ranks` are those that were absent
  kPeerLost = 4,       // a process of the group died or became unreachable; `ranks` names it
  kAborted = 5,        // a rank called abort(); `ranks` names it
  kProtocol = 6,       // a peer sent something that the protocol forbids
  kNetwork = 7,        // connecting, listening, resolving failed
  kBootstrap = 8,      // the group could not be formed; `ranks` are those missing
  kSystem = 9,         // the operating system refused something (memory, descriptors, threads)
  kUnsupported = 10,   // a valid request that this build or machine cannot serve
  kInternal = 11,      // our bug
  kClosed = 12,        // used after destroy()
  kPeerLeft = 13,      // a process of the group destroyed its communicator in good order
  kInterrupted = 14,   // the program's interrupt check ended a wait
  kUnresponsive = 15,  // a process has not answered for Config::suspicion_ms; `ranks` names it
  kCorrupt = 16,       // data arrived damaged, or results differ between ranks (Config::check_results)
  kAuthFailed = 17,    // a peer does not know the job's secret
  kEpochStale = 18,    // shrink(): the others go on without this process
  // The call is over, and the communicator goes on.
  kNotFinite = 19,  // WireOptions: an element of the result is not finite; `ranks` names where it was first met
  kCancelled = 20,  // Work::cancel() took it back
  kTruncated = 21,  // CallOptions::truncate: the message was longer than the buffer; `ranks` names its sender
  kNoQuorum = 22,   // shrink(): too few can be reached, and the rest may go on themselves; `ranks` names it
};
inline constexpr int kErrorCodes = 23;  // kOk among them

RONDO_EXPORT const char* error_code_name(ErrorCode code);

// A failure as a value: what happened, to whom, and what to do, in one sentence that names ranks and hosts.
struct Error {
  ErrorCode code = ErrorCode::kOk;
  std::string message;
  std::vector<int> ranks;  // culprits, in the numbering of the communicator that reports it; may be empty
  // The same ones, where a communicator reports them: as ranks of the job, and their process ids as they know them
  // themselves (containers differ), 0 on another host.
  std::vector<int> world_ranks = {};
  std::vector<int64_t> processes = {};
  int tag = -1;  // kTruncated: of the message

  bool ok() const { return code == ErrorCode::kOk; }
};

// An Error that is thrown: by constructors and argument checks before any side effect, and by waits for the operation's
// failure.
class RONDO_EXPORT Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  Exception(ErrorCode code, std::string message) : Exception(Error{code, std::move(message), {}}) {}
  const Error& error() const { return error_; }
  ErrorCode code() const { return error_.code; }

 private:
  Error error_;
};

}  // namespace rondo
