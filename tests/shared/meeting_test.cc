// Who may meet at a rank's local socket, and what they find out about each other.
#include "transport/shared/meeting.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "tests/fabric/cluster.h"
#include "transport/shared/island_socket.h"
#include "transport/shared/memory_file.h"

namespace rondo::testing {
namespace {

MeetingOrder order_for(int rank, const std::vector<std::unique_ptr<MeetingPlace>>& places, int ms) {
  MeetingOrder order;
  order.rank = rank;
  order.world = static_cast<int>(places.size());
  order.session = 77;
  order.deadline = in(ms);
  order.gone = [](int) { return false; };
  for (int guest = 0; guest < order.world; ++guest) {
    if (guest != rank) order.guests.push_back({guest, ::getpid(), places[static_cast<size_t>(guest)]->name()});
  }
  return order;
}

std::vector<std::unique_ptr<MeetingPlace>> places_for(int world) {
  std::vector<std::unique_ptr<MeetingPlace>> places;
  for (int rank = 0; rank < world; ++rank) {
    places.push_back(std::make_unique<MeetingPlace>(world));
    REQUIRE(places.back()->why() == "");
  }
  return places;
}

TEST_CASE("ranks that can share memory find it out pair by pair, and have a connection each") {
  const auto places = places_for(5);
  std::vector<std::vector<MeetingResult>> results(5);
  in_parallel(5, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    results[r] = meet(*places[r], order_for(rank, places, 10'000));
  });
  for (int rank = 0; rank < 5; ++rank) {
    const auto& mine = results[static_cast<size_t>(rank)];
    REQUIRE(mine.size() == 4);
    for (const MeetingResult& result : mine) {
      CHECK(result.why_not == "");
      CHECK(result.socket.valid());
      CHECK(result.pulls);
    }
  }
}

TEST_CASE(
    "a rank that does not come is given up at the deadline, one that is gone at once, and the others still meet") {
  const auto places = places_for(4);
  std::vector<std::vector<MeetingResult>> results(4);
  in_parallel(2, [&](int rank) {  // 2 never comes; 3 has died
    const auto r = static_cast<size_t>(rank);
    MeetingOrder order = order_for(rank, places, 700);
    order.gone = [](int peer) { return peer == 3; };
    results[r] = meet(*places[r], order);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto& mine = results[static_cast<size_t>(rank)];
    REQUIRE(mine.size() == 3);
    CHECK(mine[0].why_not == "");
    CHECK(mine[1].why_not == "it did not come to the meeting in time");
    CHECK(mine[2].why_not == "that rank has gone");
  }
}

TEST_CASE("a rank without a local socket shares with nobody, and nobody waits for it") {
  auto places = places_for(2);
  MeetingOrder order = order_for(0, places, 60'000);
  order.guests[0].place.clear();
  const auto begin = Clock::now();
  const auto results = meet(*places[0], order);
  CHECK(results[0].why_not == "that rank cannot share memory");
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("a process with another pid than the card says, or of another start, is refused") {
  for (const bool wrong_pid : {true, false}) {
    CAPTURE(wrong_pid);
    const auto places = places_for(2);
    std::vector<std::vector<MeetingResult>> results(2);
    in_parallel(2, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      MeetingOrder order = order_for(rank, places, 700);
      if (wrong_pid && rank == 0) order.guests[0].pid = 1;
      if (!wrong_pid && rank == 1) order.session = 78;
      results[r] = meet(*places[r], order);
    });
    CHECK(results[0][0].why_not != "");
    CHECK(results[1][0].why_not != "");
  }
}

// A process of the user nobody that tells through its exit code how it fared: 0: it was shut out.
pid_t stranger(const std::string& place) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
  int error = 0;
  const Descriptor socket = connect_abstract(place, error);
  if (!socket.valid()) ::_exit(0);
  const std::string greeting(48, 'R');
  std::string why;
  send_message(socket.get(), greeting.data(), greeting.size(), {}, why);
  pollfd wish{socket.get(), POLLIN, 0};
  char byte = 0;
  const bool closed = ::poll(&wish, 1, 5'000) == 1 && ::recv(socket.get(), &byte, 1, 0) <= 0;
  ::_exit(closed ? 0 : 1);
}

TEST_CASE("another user's process is shut out, and disturbs nobody (needs root)") {
  REQUIRE(::geteuid() == 0);
  const auto places = places_for(2);
  const pid_t child = stranger(places[0]->name());
  std::vector<std::vector<MeetingResult>> results(2);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { results[0] = meet(*places[0], order_for(0, places, 10'000)); });
  int status = -1;
  ::waitpid(child, &status, 0);  // before rank 1 comes
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  threads.emplace_back([&] { results[1] = meet(*places[1], order_for(1, places, 10'000)); });
  for (std::thread& thread : threads) thread.join();
  CHECK(results[0][0].why_not == "");
  CHECK(results[1][0].why_not == "");
}

TEST_CASE("connections of this user that say nothing or rubbish do not keep the ranks from meeting") {
  const auto places = places_for(2);
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 12; ++i) {
    int error = 0;
    strangers.push_back(connect_abstract(places[0]->name(), error));
    REQUIRE(strangers.back().valid());
    std::string why;
    const std::string rubbish(static_cast<size_t>(i) * 5 + 1, '\xff');
    if (i % 2 == 0) send_message(strangers.back().get(), rubbish.data(), rubbish.size(), {}, why);
  }
  std::vector<std::vector<MeetingResult>> results(2);
  in_parallel(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    results[r] = meet(*places[r], order_for(rank, places, 10'000));
  });
  CHECK(results[0][0].why_not == "");
  CHECK(results[1][0].why_not == "");
}

TEST_CASE("a memory file is sealed: nobody can change its size, and what is not sealed is refused") {
  const Descriptor file = make_memory_file(10'000, Pages::kReserved);
  CHECK(::ftruncate(file.get(), 0) != 0);
  CHECK(::ftruncate(file.get(), 1 << 20) != 0);
  CHECK(check_memory_file(file.get(), 10'000) == "");
  CHECK(check_memory_file(file.get(), 20'000) != "");
  FILE* plain = std::tmpfile();
  REQUIRE(plain != nullptr);
  REQUIRE(::ftruncate(::fileno(plain), 12'288) == 0);
  CHECK(check_memory_file(::fileno(plain), 10'000) != "");
  std::fclose(plain);
}

}  // namespace
}  // namespace rondo::testing
