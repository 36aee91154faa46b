#pragma once

#include <memory>
#include <string>

#include <rondo/config.h>
#include <rondo/export.h>

namespace rondo {

class StoreServer;

// A meeting point that one process makes and hands to the ranks as a string. The maker need not be a rank; it serves
// the store from a thread until all ranks have said goodbye, or until this object is destroyed. Children made by fork
// keep nothing of it open: the descriptors are closed there, and the copied object does nothing.
class RONDO_EXPORT UniqueIdServer {
 public:
  // host: the address to listen on and to publish, one of this machine; "": one that other hosts reach, or loopback
  // where there is none. Ports: those of config.data_ports.
  // Throws Exception(kBootstrap) if no port is free; kInvalid for a host that others could not use.
  explicit UniqueIdServer(const std::string& host = "", const Config& config = Config::from_environment());

  ~UniqueIdServer();
  UniqueIdServer(UniqueIdServer&&) noexcept;
  UniqueIdServer& operator=(UniqueIdServer&&) noexcept;

  // "unique:<host>:<port>:<32 hex digits>". The digits are the job's secret: processes prove that they know it and
  // never send it. Any process that has it can join, so treat it like a password.
  const std::string& id() const { return id_; }
  // All ranks have said goodbye, and the thread has ended.
  bool complete() const;

 private:
  std::string id_;
  std::unique_ptr<StoreServer> server_;
};

}  // namespace rondo
