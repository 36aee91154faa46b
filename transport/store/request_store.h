#pragma once

#include "rondo/store.h"
#include "transport/store/store_wire.h"

namespace rondo {

// A store whose calls are all one: it carries out a StoreRequest. Keys and values are checked here.
class RequestStore : public Store {
 public:
  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, Deadline deadline) override;
  std::optional<std::string> try_get(std::string_view key, Deadline deadline) override;
  int64_t add(std::string_view key, int64_t amount, Deadline deadline) override;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override;
  bool remove(std::string_view key, Deadline deadline) override;

 protected:
  // Checks the request's bounds, carries it out, and throws kBootstrap where it is refused. Also for requests that are
  // no call of Store (StreamStore::leave_will()).
  StoreReply ask(StoreRequest request, Deadline deadline);
  // The request is within its bounds; a kGet waits for its key; a kAdd that is not refused is answered by a number.
  // Throws as Store says.
  virtual StoreReply transact(StoreRequest request, Deadline deadline) = 0;
};

}  // namespace rondo
