#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/collective.h>
#include <rondo/export.h>

namespace rondo {

// Everything that can be set, as a value. A default-constructed Config is what the library does by itself;
// Config::from_environment() is that with the RONDO_* variables applied (docs/environment.md lists each one).
// Fields marked (shared) must be equal on all ranks; the handshake compares them and names the first that differs.
struct RONDO_EXPORT Config {
  // --- deadlines, milliseconds; each > 0
  int64_t start_timeout_ms = 120'000;    // RONDO_START_TIMEOUT_MS: until every rank is known and connected
  int64_t handshake_timeout_ms = 5'000;  // RONDO_HANDSHAKE_TIMEOUT_MS: for a connection to say who it is
  int64_t timeout_ms = 1'800'000;        // RONDO_TIMEOUT_MS: an operation, unless the call says otherwise
  int64_t destroy_timeout_ms = 5'000;    // RONDO_DESTROY_TIMEOUT_MS: for the other ranks' goodbyes
  int64_t stall_ms = 200;                // RONDO_STALL_MS: without progress for so long, an operation asks the others

  // RONDO_HEARTBEAT_MS: ranks show their neighbors this often that they live; one that is silent twice as long is
  // warned of                                                                                             (shared)
  int64_t heartbeat_ms = 1'000;
  // RONDO_SUSPICION_MS: a rank that is silent for so long is given up (kUnresponsive). 0: never, as a debugger needs
  // it; else at least three heartbeats                                                                        (shared)
  int64_t suspicion_ms = 10'000;

  // --- transport
  std::string transport = "auto";  // RONDO_TRANSPORT: auto, tcp, shm                                    (shared)
  std::string socket_interface;    // RONDO_SOCKET_IFNAME: comma-separated names or prefixes; ^ excludes; empty: chosen
  std::string data_ports = "0";    // RONDO_PORT_RANGE: "0" any, "5000" or "5000-5099" for data and control
  // RONDO_SECRET_FILE: what only the ranks know; needed between hosts. A file of this user's with mode 600
  std::string secret_file;
  int32_t secret_fd = -1;  // RONDO_SECRET_FD: the same from an open descriptor; -1: none
  bool insecure = false;   // RONDO_INSECURE=1: no authentication; every process that can connect is believed
  bool encrypt = false;    // RONDO_ENCRYPT=1: what goes over TCP is sealed                                     (shared)
  // RONDO_CHECKSUM: CRC-32C of what goes over TCP: auto (between hosts), on (on loopback, too), off        (shared)
  std::string checksum = "auto";
  std::string congestion_control =
      "auto";                        // RONDO_TCP_CONGESTION: auto (chosen per link), or a name; "" leaves it alone
  uint32_t socket_buffer_bytes = 0;  // RONDO_SOCKET_BUFFER_BYTES: 0 chosen by the transport

  // --- engine
  uint32_t connections = 1;            // RONDO_CONNECTIONS: sockets a link, 1..16                            (shared)
  uint32_t slice_bytes = 256 * 1024;   // RONDO_SLICE_BYTES: the largest slice, 4 KiB .. 16 MiB               (shared)
  uint32_t slices_per_chunk = 4;       // RONDO_SLICES_PER_CHUNK: 1..64; a link's depth is one more           (shared)
  uint64_t mailbox_bytes = 64u << 20;  // RONDO_MAILBOX_BYTES: cap on the mailboxes of one communicator       (shared)
  Algorithm algorithm = Algorithm::kAuto;  // RONDO_ALGORITHM: auto, or algorithm_name() (shared)
  uint64_t staging_bytes = 1u << 20;  // RONDO_STAGING_BYTES: shared memory of a rank for plans over it      (shared)
  uint64_t bucket_bytes =
      1u << 20;  // RONDO_BUCKET_BYTES: small all_reduces of a list share a bucket of this size  (shared)
  std::string single_copy = "auto";  // RONDO_SINGLE_COPY: auto, on, off: read other processes' memory      (shared)
  // RONDO_SHARED_STORES: auto, cached, streamed: how what others read is written                      (shared)
  std::string shared_stores = "auto";
  // RONDO_FOLD: fixed, any: whether times may choose algorithms that fold in another order               (shared)
  std::string fold = "fixed";
  int64_t spin_us = 200;  // RONDO_SPIN_US: poll so long before sleeping
  // RONDO_EAGER_BYTES: messages up to here are sent before they are asked for (shared)
  uint32_t eager_bytes = 256 * 1024;
  // RONDO_DEVICE_WINDOW_BYTES: GPU memory of a rank through which plain GPU buffers go; calls on GPU memory are cut at
  // this size; 0: they are staged through host memory (shared)
  uint64_t device_window_bytes = 64u << 20;
  // RONDO_DEVICE_BLOCKS: blocks that a kernel of a communicator has at most, of some four a multiprocessor; each holds
  // its place while it waits for other ranks (shared)
  uint32_t device_blocks = 32;
  std::string device_library;  // RONDO_DEVICE_LIBRARY: path of NVIDIA's driver; empty: libcuda.so.1
  // RONDO_CHECK: off; finite: a NaN or an infinity in the input of a call, and digest: results of all_reduce,
  // all_gather and broadcast that differ between ranks, end the communicator with rank and index; digest,finite
  // (shared)
  std::string check_results = "off";
  bool mpi_strict = false;  // RONDO_MPI_STRICT: MPI's reductions whose ranks differ in the op end in an error (shared)
  std::string debug = "warn";  // RONDO_DEBUG: off, warn, info, trace (to standard error)

  // --- what happened
  std::string trace_folder;          // RONDO_TRACE: a folder for this rank's trace; empty: none
  uint64_t trace_bytes = 16u << 20;  // RONDO_TRACE_BYTES: of the ring of records, 64 KiB .. 16 GiB
  std::string metrics;               // RONDO_METRICS: on, or a folder; empty: none
  bool status = false;               // RONDO_STATUS: a socket of this user's says what this rank is doing

  // settings: "RONDO_X=value" of the variables above; they come before the environment's. Throws Exception(kInvalid)
  // naming the variable, its value and what is allowed; also for a setting that is unknown or given twice.
  static Config from_environment(std::span<const std::string> settings = {});
  // Throws Exception(kInvalid) naming the first field out of range.
  void check() const;
  // One "name=value" a line, for RONDO_DEBUG=info.
  std::string describe() const;
  // Hash of the (shared) fields.
  uint64_t shared_hash() const;
  // Variables of the (shared) fields.
  static std::vector<std::string_view> shared_names();
};

}  // namespace rondo
