#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <rondo/export.h>
#include <rondo/store.h>

namespace rondo {

// A store made of functions, so that another framework's store serves. Each has the meaning of Store's function of
// the same name; all must be set. What they throw becomes Exception(kBootstrap), unless it is an Exception already.
class RONDO_EXPORT CallbackStore : public Store {
 public:
  struct Functions {
    std::function<void(std::string_view key, std::string_view value, Deadline)> put;
    std::function<std::string(std::string_view key, Deadline)> get;
    std::function<std::optional<std::string>(std::string_view key, Deadline)> try_get;
    std::function<int64_t(std::string_view key, int64_t amount, Deadline)> add;
    std::function<std::string(std::string_view key, std::string_view expected, std::string_view desired, Deadline)>
        compare_set;
    std::function<bool(std::string_view key, Deadline)> remove;
  };

  // Every key gets the prefix, so that the framework's own keys are not touched. Throws Exception(kInvalid) if a
  // function is missing.
  CallbackStore(Functions functions, std::string prefix = "rondo/");

  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::optional<std::string> try_get(std::string_view key, Deadline deadline) override;
  int64_t add(std::string_view key, int64_t amount, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool remove(std::string_view key, Deadline deadline) override;

 private:
  // Checks the entry and gives the framework's key.
  std::string full(std::string_view key, std::string_view value) const;

  Functions functions_;
  std::string prefix_;
};

}  // namespace rondo
