// What rondo.h has beside calls: names, places, groups, errors, the end; through that header alone.
#include <doctest/doctest.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rondo/rondo.h"
#include "tests/api/c_ranks.h"
#include "tests/api/plain_c.h"
#include "tests/support/temp_folder.h"

namespace {

using rondo::testing::expect;
using rondo::testing::on_threads;
using rondo::testing::want;
using rondo::testing::want_text;

void want_invalid(rondo_result_t got, const char* named) { want_text(got, RONDO_INVALID, named); }

rondo_result_t join_at(rondo_comm_t* comm, int rank, int world, const char* rendezvous) {
  rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
  options.rank = rank;
  options.world = world;
  options.rendezvous = rendezvous;
  return rondo_join(comm, &options);
}

}  // namespace

TEST_CASE("version and names") {
  CHECK(std::string(rondo_version()) == RONDO_VERSION);
  CHECK(RONDO_VERSION == std::to_string(RONDO_VERSION_MAJOR) + "." + std::to_string(RONDO_VERSION_MINOR) + "." +
                             std::to_string(RONDO_VERSION_PATCH));
  CHECK(RONDO_VERSION_NUMBER == 200);
  CHECK(std::string(rondo_result_name(RONDO_OK)) == "OK");
  CHECK(std::string(rondo_result_name(RONDO_PEER_LEFT)) == "PEER_LEFT");
  CHECK(std::string(rondo_result_name(RONDO_AUTH_FAILED)) == "AUTH_FAILED");
  CHECK(std::string(rondo_result_name(RONDO_NOT_FINITE)) == "NOT_FINITE");
  CHECK(std::string(rondo_result_name(RONDO_IN_PROGRESS)) == "IN_PROGRESS");
  CHECK(std::string(rondo_result_name(99)) == "UNKNOWN");
  CHECK(std::string(rondo_result_name(-1)) == "UNKNOWN");
}

TEST_CASE("a program in C") {
  CHECK(on_threads(3, [](rondo_comm_t comm, int) {
          const char* trouble = plain_c_sum(comm);
          expect(trouble == nullptr, trouble == nullptr ? "" : trouble);
        }) == "");
}

TEST_CASE("place") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int own) {
          int rank = -1, size = -1;
          want(rondo_rank(comm, &rank));
          want(rondo_size(comm, &size));
          rondo_place_t place = {-1, -1, -1, -1, -1, -1};
          want(rondo_place(comm, &place));
          expect(rank == own && size == 2 && place.rank == own && place.world == 2, "rank and size");
          expect(place.local_rank == own && place.local_world == 2 && place.node == 0 && place.nodes == 1, "place");
          int host[] = {-5, -5}, island[] = {-5, -5}, cores[] = {-5, -5};
          want(rondo_topology(comm, host, island, cores));
          expect(host[0] == 0 && host[1] == 0 && island[0] == island[1] && cores[0] >= 0 && cores[0] == cores[1],
                 "topology");
          want(rondo_topology(comm, nullptr, nullptr, nullptr));
          const char* name = nullptr;
          want(rondo_algorithm_for(comm, RONDO_ALL_REDUCE, 1 << 20, RONDO_FLOAT32, RONDO_SUM, 1, &name));
          expect(std::string(name) == "registered", std::string("registered buffers by ") + name);
          want(rondo_algorithm_for(comm, RONDO_ALL_REDUCE, 2, RONDO_FLOAT32, RONDO_SUM, 0, &name));
          expect(std::string(name) == "one_shot", std::string("8 bytes by ") + name);
          want_invalid(rondo_algorithm_for(comm, 11, 1, RONDO_FLOAT32, RONDO_SUM, 0, &name), "collective 11");
          expect(name == nullptr, "a name of a refused call");
        }) == "");
}

// Their ranks, by colors, keys and lists: tests/life.
TEST_CASE("a group of no rank, and one that a rank is not among") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          const int ranks[] = {1};
          rondo_comm_t group = nullptr;
          if (rank == 0) {
            want_invalid(rondo_new_group(comm, ranks, 1, &group), "not among");
            expect(group == nullptr, "a handle of a refused call");
            want_invalid(rondo_new_group(comm, nullptr, 2, &group), "ranks");
          }
        }) == "");
}

TEST_CASE("NULL and values out of range are RONDO_INVALID, and say what") {
  // Proves: a value that does not fit the enumeration is refused, and not cut to its lowest byte.
  CHECK(on_threads(1, [](rondo_comm_t comm, int) {
          int x = 0;
          int64_t n[2] = {1, 1};
          want_invalid(rondo_rank(comm, nullptr), "rank is NULL");
          want_invalid(rondo_size(comm, nullptr), "size is NULL");
          want_invalid(rondo_authenticated(comm, nullptr), "authenticated is NULL");
          want_invalid(rondo_place(comm, nullptr), "place is NULL");
          want_invalid(rondo_topology(nullptr, nullptr, nullptr, nullptr), "comm is NULL");
          want_invalid(rondo_algorithm_for(comm, RONDO_BARRIER, 0, RONDO_INT8, RONDO_SUM, 0, nullptr), "name is NULL");
          want_invalid(rondo_error(nullptr), "comm is NULL");
          want_invalid(rondo_close(nullptr), "comm is NULL");
          want_invalid(rondo_join(nullptr, nullptr), "comm is NULL");
          want_invalid(rondo_reply_set(nullptr, "x", 1), "reply is NULL");
          want_invalid(rondo_work_on_end(nullptr, nullptr, nullptr), "work is NULL");
          want_invalid(rondo_rank(nullptr, &x), "comm is NULL");
          want_invalid(rondo_barrier(nullptr, nullptr), "comm is NULL");
          want_invalid(rondo_barrier_async(comm, nullptr, nullptr), "work is NULL");
          want_invalid(rondo_batch_end_async(comm, nullptr), "work is NULL");
          want_invalid(rondo_all_gather_v(nullptr, n, n, nullptr, nullptr, RONDO_INT64, nullptr), "comm is NULL");
          want_invalid(rondo_send(nullptr, n, 1, RONDO_INT64, 0, 0, nullptr), "comm is NULL");
          want_invalid(rondo_wait(nullptr, 0), "work is NULL");
          want_invalid(rondo_test(nullptr, &x), "work is NULL");
          want_invalid(rondo_work_message(nullptr, nullptr), "NULL");
          want_invalid(rondo_split(comm, 0, 0, nullptr), "sub is NULL");
          want_invalid(rondo_new_group(comm, &x, 1, nullptr), "sub is NULL");
          want_invalid(rondo_abort(nullptr, nullptr), "comm is NULL");
          want_invalid(rondo_destroy(nullptr), "comm is NULL");
          want_invalid(rondo_init(nullptr), "comm is NULL");
          want_invalid(rondo_init_inproc(nullptr, 1), "comms is NULL");
          rondo_comm_t none = nullptr;
          want_invalid(rondo_init_inproc(&none, 0), "world");
          want_invalid(rondo_id_server_create(nullptr, nullptr, nullptr), "server is NULL");
          rondo_id_server_t server = nullptr;
          want_invalid(rondo_id_server_create(&server, nullptr, nullptr), "id is NULL");
          want(rondo_id_server_destroy(nullptr));
          want_invalid(rondo_all_reduce(comm, nullptr, n, 1, RONDO_INT64, RONDO_SUM, nullptr), "null");
          want_invalid(rondo_all_gather_v(comm, n, n, nullptr, nullptr, RONDO_INT64, nullptr), "counts");
          for (const int value : {-1, 15, 256, 256 + 6, 1 << 20}) {
            const auto dtype = static_cast<rondo_dtype_t>(value);
            const auto op = static_cast<rondo_op_t>(value);
            want_invalid(rondo_all_reduce(comm, n, n, 1, dtype, RONDO_SUM, nullptr), "dtype");
            want_invalid(rondo_all_reduce(comm, n, n, 1, RONDO_INT64, op, nullptr), "op");
            want_invalid(rondo_send(comm, n, 1, dtype, 0, 0, nullptr), "dtype");
            want_invalid(rondo_recv(comm, n, 1, dtype, 0, 0, nullptr, nullptr), "dtype");
            want_invalid(rondo_sendrecv(comm, n, 1, 0, n + 1, 1, 0, dtype, 0, nullptr, nullptr), "dtype");
          }
          want(rondo_barrier(comm, nullptr));
        }) == "");
}

TEST_CASE("the last error belongs to the thread, with the ranks that it blames") {
  CHECK(on_threads(3, [](rondo_comm_t comm, int rank) {
          expect(std::string(rondo_last_error()).empty(), "a new thread has no last error");
          rondo_options_t options = RONDO_OPTIONS_INIT;
          options.timeout_ms = 300;
          if (rank == 2) options.timeout_ms = 60'000;
          char go = 0;
          if (rank == 2) {  // calls nothing before the others have timed out
            want(rondo_recv(comm, &go, 1, RONDO_INT8, 0, 0, &options, nullptr), RONDO_TIMEOUT);
          } else {
            want(rondo_barrier(comm, &options), RONDO_TIMEOUT);
          }
          int ranks[4] = {-1, -1, -1, -1};
          expect(rondo_last_error_ranks(ranks, 4) == 1 && ranks[0] == 2 && ranks[1] == -1, "blames rank 2");
          expect(rondo_last_error_ranks(nullptr, 0) == 1, "how many there are");
          expect(std::string(rondo_last_error()).find("barrier") != std::string::npos, rondo_last_error());
          want(rondo_barrier(comm, nullptr), RONDO_TIMEOUT);
        }) == "");
}

TEST_CASE("abort ends every rank's calls with the reason") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int rank) {
          if (rank == 0) want(rondo_error(comm));
          if (rank == 0) want(rondo_abort(comm, "out of coffee"));
          want(rondo_barrier(comm, nullptr), RONDO_ABORTED);
          expect(std::string(rondo_last_error()).find("out of coffee") != std::string::npos, rondo_last_error());
          int who = -1;
          expect(rondo_last_error_ranks(&who, 1) == 1 && who == 0, "names who");
          want_invalid(rondo_rank(comm, nullptr), "rank is NULL");  // another last error
          want(rondo_error(comm), RONDO_ABORTED);
          expect(std::string(rondo_last_error()).find("out of coffee") != std::string::npos, rondo_last_error());
          expect(rondo_last_error_ranks(&who, 1) == 1 && who == 0, "the failure names who");
        }) == "");
}

TEST_CASE("close: goodbye is said, calls are CLOSED, and registered memory stays until destroy") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int) {
          void* data = nullptr;
          want(rondo_allocate(comm, 8 * 1000, &data));
          auto* numbers = static_cast<int64_t*>(data);
          numbers[999] = 1;
          want(rondo_all_reduce(comm, numbers, numbers, 1000, RONDO_INT64, RONDO_SUM, nullptr));
          rondo_work_t work = nullptr;
          want(rondo_barrier_async(comm, nullptr, &work));
          want(rondo_wait(work, -1));
          want(rondo_close(comm));
          want(rondo_close(comm));
          expect(numbers[999] == 2, "memory");
          numbers[0] = 7;
          want(rondo_barrier(comm, nullptr), RONDO_CLOSED);
          want(rondo_recv(comm, numbers, 1, RONDO_INT64, 0, 0, nullptr, nullptr), RONDO_CLOSED);
          want(rondo_error(comm), RONDO_CLOSED);
          int rank = -1;
          want(rondo_rank(comm, &rank));
          want(rondo_wait(work, -1));
          want(rondo_work_free(work));
          want(rondo_deallocate(comm, data));
        }) == "");
}

TEST_CASE("memory of a GPU without the library for it: all ranks are told so, and go on") {
  CHECK(on_threads(2, [](rondo_comm_t comm, int) {
          void* data = &comm;
          want(rondo_allocate_device(comm, 64, &data), RONDO_UNSUPPORTED);
          expect(data == nullptr, "data is set");
          expect(std::string(rondo_last_error()).find("libcuda.so.1") != std::string::npos, rondo_last_error());
          want(rondo_barrier(comm, nullptr));
        }) == "");
}

// The parent has only waited for its threads above, so it may fork.
// The thread sanitizer does not support threads in the child of a process that had threads.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a unique id made by the parent joins two processes; the environment does too") {
  rondo_id_server_t server = nullptr;
  const char* id = nullptr;
  REQUIRE(rondo_id_server_create(&server, nullptr, &id) == RONDO_OK);
  const std::string unique = id;
  CHECK(unique.rfind("unique:", 0) == 0);
  const auto use = [](rondo_comm_t comm) {
    const char* trouble = plain_c_sum(comm);
    expect(trouble == nullptr, trouble == nullptr ? "" : trouble);
    int size = 0;
    want(rondo_size(comm, &size));
    expect(size == 2, "size");
    want(rondo_destroy(comm));
  };
  CHECK(rondo::testing::run_bare_processes(2, std::chrono::seconds(60), [&](int rank) {
          rondo_comm_t comm = nullptr;
          want(join_at(&comm, rank, 2, unique.c_str()));
          use(comm);
        }) == "");
  CHECK(rondo_id_server_destroy(server) == RONDO_OK);

  REQUIRE(rondo_id_server_create(&server, "127.0.0.1", &id) == RONDO_OK);
  const std::string second = id;
  CHECK(second != unique);
  CHECK(rondo::testing::run_bare_processes(2, std::chrono::seconds(60), [&](int rank) {
          ::setenv("RANK", std::to_string(rank).c_str(), 1);
          ::setenv("WORLD_SIZE", "2", 1);
          ::setenv("RONDO_RENDEZVOUS", second.c_str(), 1);
          rondo_comm_t comm = nullptr;
          want(rondo_init(&comm));
          use(comm);
        }) == "");
  CHECK(rondo_id_server_destroy(server) == RONDO_OK);
}
#endif

TEST_CASE("log lines go to the program's function, and back to standard error") {
  CHECK(rondo::testing::run_bare_processes(1, std::chrono::seconds(60), [](int) {
          std::vector<std::string> lines;
          const auto keep = [](void* context, int level, int rank, const char* text) {
            static_cast<std::vector<std::string>*>(context)->push_back(std::to_string(level) + " " +
                                                                       std::to_string(rank) + " " + text);
          };
          ::setenv("RONDO_DEBUG", "info", 1);
          const auto join_and_leave = [] {
            rondo_comm_t comm = nullptr;
            want(join_at(&comm, 0, 1, nullptr));
            want(rondo_destroy(comm));
          };
          want(rondo_set_log(keep, &lines));
          join_and_leave();
          const size_t kept = lines.size();
          expect(kept > 0 && lines[0].starts_with("2 0 rank 0 of 1"), kept > 0 ? lines[0] : "no line");
          want(rondo_set_log(nullptr, nullptr));
          join_and_leave();
          expect(lines.size() == kept, "the function is called after it was taken back");
        }) == "");
}

TEST_CASE("the program's function ends a wait, and the other rank is told who was interrupted") {
  struct Asked {
    int times = 0;
    int until = 3;
  };
  const auto ask = [](void* context) {
    Asked& asked = *static_cast<Asked*>(context);
    return ++asked.times == asked.until ? 1 : 0;
  };
  using Wait = rondo_result_t (*)(rondo_comm_t comm);
  const Wait waits[] = {
      // The third of the same calls is the one that is prepared.
      [](rondo_comm_t comm) { return rondo_barrier(comm, nullptr); },
      [](rondo_comm_t comm) {
        char byte = 0;
        return rondo_recv(comm, &byte, 1, RONDO_INT8, RONDO_ANY_SOURCE, 5, nullptr, nullptr);
      },
      [](rondo_comm_t comm) {
        rondo_work_t work = nullptr;
        want(rondo_barrier_async(comm, nullptr, &work));
        const rondo_result_t result = rondo_wait(work, -1);
        want(rondo_work_free(work));
        return result;
      },
  };
  for (const Wait wait : waits) {
    // No server in this process: the thread sanitizer wants a fork without other threads.
    const rondo::testing::TempFolder folder;
    const std::string meeting_point = "file://" + folder.path("meet");
    CHECK(rondo::testing::run_bare_processes(2, std::chrono::seconds(60), [&](int rank) {
            rondo_comm_t comm = nullptr;
            want(join_at(&comm, rank, 2, meeting_point.c_str()));
            for (int i = 0; i < 3; ++i) want(rondo_barrier(comm, nullptr));
            Asked asked;
            if (rank == 1) {
              want(rondo_set_interrupt(ask, &asked));
              want(wait(comm), RONDO_INTERRUPTED);
              expect(asked.times == 3, "asked so many times: " + std::to_string(asked.times));
              want(rondo_barrier(comm, nullptr), RONDO_INTERRUPTED);
              want(rondo_set_interrupt(nullptr, nullptr));
            } else {
              char byte = 0;
              want(rondo_recv(comm, &byte, 1, RONDO_INT8, 1, 7, nullptr, nullptr), RONDO_ABORTED);
              expect(std::string(rondo_last_error()).find("was interrupted") != std::string::npos, rondo_last_error());
            }
            want(rondo_destroy(comm));
          }) == "");
  }
}

TEST_CASE("joining that cannot work is an error, not a crash") {
  CHECK(rondo::testing::run_bare_processes(1, std::chrono::seconds(60), [](int) {
          rondo_comm_t comm = reinterpret_cast<rondo_comm_t>(8);
          want(join_at(&comm, 5, 2, "tcp://127.0.0.1:1"), RONDO_INVALID);
          expect(comm == nullptr, "a handle of a refused call");
          want(join_at(&comm, 0, 1, "smoke://signals"), RONDO_INVALID);
          ::setenv("RONDO_CONNECTIONS", "many", 1);
          want_invalid(join_at(&comm, 0, 1, "tcp://127.0.0.1:0"), "RONDO_CONNECTIONS");
        }) == "");
}

TEST_CASE("rondo_destroy and rondo_work_free beside calls that have begun leave the end to these") {
  constexpr int kWaiting = 8;
  CHECK(on_threads(1, [](rondo_comm_t comm, int) {
          // The test destroys a communicator of its own: on_threads() destroys the other one.
          rondo_comm_t own = nullptr;
          const int first[] = {0};
          want(rondo_new_group(comm, first, 1, &own));
          rondo_work_t work = nullptr;
          char bytes[kWaiting + 1] = {};
          want(rondo_recv_async(own, &bytes[kWaiting], 1, RONDO_INT8, 0, kWaiting, nullptr, &work));
          std::vector<rondo_result_t> results(kWaiting + 1, RONDO_OK);
          std::atomic<int> asked{0};
          // Each waiting thread asks every 100 ms: all of them are inside.
          want(rondo_set_interrupt(
              [](void* context) {
                static thread_local bool counted = false;
                if (!std::exchange(counted, true)) static_cast<std::atomic<int>*>(context)->fetch_add(1);
                return 0;
              },
              &asked));
          std::vector<std::thread> threads;
          for (int i = 0; i < kWaiting; ++i) {
            threads.emplace_back(
                [&, i] { results[i] = rondo_recv(own, &bytes[i], 1, RONDO_INT8, 0, i, nullptr, nullptr); });
          }
          threads.emplace_back([&] { results[kWaiting] = rondo_wait(work, -1); });
          while (asked.load() <= kWaiting) std::this_thread::yield();
          want(rondo_work_free(work));
          want(rondo_destroy(own));
          for (std::thread& thread : threads) thread.join();
          want(rondo_set_interrupt(nullptr, nullptr));
          for (const rondo_result_t result : results) want(result, RONDO_CLOSED);
        }) == "");
}

TEST_CASE("the function of the process, or of the thread, ends rondo_join, which waits for a rank that does not come") {
  using Set = decltype(rondo_set_interrupt)*;
  constexpr std::pair<const char*, Set> kCases[] = {
      {"file://", rondo_set_interrupt}, {"unix://", rondo_set_interrupt}, {"unix://", rondo_set_thread_interrupt}};
  for (const auto& one : kCases) {
    const rondo::testing::TempFolder folder;
    const std::string meeting_point = one.first + folder.path("meet");
    CHECK(rondo::testing::run_bare_processes(1, std::chrono::seconds(60), [&](int) {
            int times = 0;
            want(one.second([](void* context) { return ++*static_cast<int*>(context) == 3 ? 1 : 0; }, &times));
            rondo_comm_t comm = reinterpret_cast<rondo_comm_t>(8);
            want(join_at(&comm, 0, 2, meeting_point.c_str()), RONDO_INTERRUPTED);
            expect(comm == nullptr && times == 3, "asked so many times: " + std::to_string(times));
            want(join_at(&comm, 0, 1, ("file://" + folder.path("another")).c_str()));
            want(rondo_destroy(comm));
          }) == "");
  }
}

TEST_CASE("a call ends as interrupted though what it waited for ended in the same moment") {
  CHECK(on_threads(1, [](rondo_comm_t comm, int) {
          // The function itself sends what the call waits for.
          want(rondo_set_interrupt(
              [](void* context) {
                const char byte = 1;
                rondo_work_t work = nullptr;
                want(rondo_send_async(static_cast<rondo_comm_t>(context), &byte, 1, RONDO_INT8, 0, 3, nullptr, &work));
                want(rondo_wait(work, -1));
                want(rondo_work_free(work));
                return 1;
              },
              comm));
          char byte = 0;
          want(rondo_recv(comm, &byte, 1, RONDO_INT8, 0, 3, nullptr, nullptr), RONDO_INTERRUPTED);
          want(rondo_set_interrupt(nullptr, nullptr));
        }) == "");
}
