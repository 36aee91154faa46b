#include "transport/rendezvous/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "ring/base/interrupt.h"
#include "rondo/error.h"

namespace rondo {
namespace {

constexpr char kLibrary[] = "libpmix.so.2";
// One question lasts so long, between two looks for an interruption. The interface counts in seconds.
constexpr int kQuestionSeconds = 1;
constexpr auto kRetryEvery = std::chrono::milliseconds(20);  // a start takes longer

[[noreturn]] void fail(const std::string& message) {
  throw Exception(ErrorCode::kBootstrap,
                  message +
                      ". Set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port there instead "
                      "(mpirun -x MASTER_ADDR=... -x MASTER_PORT=...)");
}

}  // namespace

// A static, since the server counts one introduction a process.
PmixClient& PmixClient::of_process() {
  static PmixClient client;
  return client;
}

// RTLD_LOCAL keeps the library's names out of the program's.
PmixClient::PmixClient() : library_(::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)), owner_(::getpid()) {
  if (library_ == nullptr)
    fail(fmt::format("the launcher has a PMIx server, but {} cannot be opened ({})", kLibrary, ::dlerror()));
  check("PMIx_Init", symbol<pmix::Init>("PMIx_Init")(&self_, nullptr, 0));
}

PmixClient::~PmixClient() {
  if (owner_ == ::getpid()) symbol<pmix::Finalize>("PMIx_Finalize")(nullptr, 0);
}

template <class Function>
Function PmixClient::symbol(const char* name) const {
  void* address = ::dlsym(library_, name);
  if (address == nullptr) fail(fmt::format("{} has no {}", kLibrary, name));
  return reinterpret_cast<Function>(address);
}

void PmixClient::check(const char* call, pmix::Status status) const {
  if (status == pmix::kSuccess) return;
  fail(fmt::format("{}: {}", call, symbol<pmix::ErrorString>("PMIx_Error_string")(status)));
}

// PMIx_Commit() makes it known; until then it stays in the process.
void PmixClient::put(const std::string& key, const std::string& value) {
  pmix::Value text{};
  text.type = pmix::kStringType;
  text.data.string = const_cast<char*>(value.c_str());  // copied
  check("PMIx_Put", symbol<pmix::Put>("PMIx_Put")(pmix::kGlobalScope, key.c_str(), &text));
  check("PMIx_Commit", symbol<pmix::Commit>("PMIx_Commit")());
}

// A server answers "not found" instead of waiting for a rank that has put other things before (MPI_Init does).
std::string PmixClient::get(int rank, const std::string& key, Store::Deadline deadline) {
  while (true) {
    std::string text;
    const pmix::Status status = try_get(rank, key, text);
    if (status == pmix::kSuccess) return text;
    if (std::chrono::steady_clock::now() + kRetryEvery >= deadline) {
      throw Exception(Error{ErrorCode::kBootstrap,
                            fmt::format("rank {} is missing: it has not said where to meet (PMIx_Get: {})", rank,
                                        symbol<pmix::ErrorString>("PMIx_Error_string")(status)),
                            {rank}});
    }
    end_wait_if_interrupted();
    std::this_thread::sleep_for(kRetryEvery);
  }
}

// The value is the caller's to free, its text apart (PMIx standard, PMIx_Get).
pmix::Status PmixClient::try_get(int rank, const std::string& key, std::string& text) const {
  pmix::Process owner = self_;
  owner.rank = static_cast<uint32_t>(rank);
  pmix::Info timeout{};
  std::memcpy(timeout.key, pmix::kTimeoutKey, sizeof(pmix::kTimeoutKey));
  timeout.value.type = pmix::kIntType;
  timeout.value.data.integer = kQuestionSeconds;
  pmix::Value* value = nullptr;
  const pmix::Status status = symbol<pmix::Get>("PMIx_Get")(&owner, key.c_str(), &timeout, 1, &value);
  if (status != pmix::kSuccess) return status;
  const bool is_text = value->type == pmix::kStringType && value->data.string != nullptr;
  if (is_text) {
    text = value->data.string;
    std::free(value->data.string);
  }
  std::free(value);
  return status;
}

}  // namespace rondo
