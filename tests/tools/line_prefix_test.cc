#include "tools/launcher/line_prefix.h"

#include <doctest/doctest.h>

#include <string>

using rondo::launcher::LinePrefix;
using namespace std::string_literals;

TEST_CASE("lines are prefixed whatever the pieces in which they arrive") {
  const std::string text = "one\n\ntwo\0three\n\xff\xfe\nlast"s;
  const std::string expected = "[3] one\n[3] \n[3] two\0three\n[3] \xff\xfe\n[3] last\n"s;
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    CAPTURE(piece);
    LinePrefix lines("[3] ");
    std::string out;
    for (size_t at = 0; at < text.size(); at += piece) lines.append(text.substr(at, piece), out);
    lines.finish(out);
    CHECK(out == expected);
  }
}

TEST_CASE("an unfinished line is held back until it is complete, and written once at the end") {
  LinePrefix lines("> ");
  std::string out;
  lines.append("50 %", out);
  CHECK(out.empty());
  lines.append(" done", out);
  lines.finish(out);
  lines.finish(out);
  CHECK(out == "> 50 % done\n");
}

TEST_CASE("a line without end is broken at the limit, and no byte is lost") {
  LinePrefix lines("");
  std::string out;
  const std::string piece(1000, 'x');
  for (int i = 0; i < 200; ++i) lines.append(piece, out);
  lines.finish(out);
  const size_t whole = LinePrefix::kMaxLineBytes;
  CHECK(out.size() == 200'000 + 200'000 / whole + 1);
  CHECK(out.find('\n') == whole);
  CHECK(out.find('\n', whole + 1) == 2 * whole + 1);
}

TEST_CASE("a line of the limit with its prefix is whole, and what was broken once is not broken again") {
  const std::string prefix = "[3] ";
  const size_t most = LinePrefix::kMaxLineBytes - prefix.size();
  for (const size_t bytes : {most - 1, most, most + 1, 2 * most, 2 * most + 1}) {
    CAPTURE(bytes);
    LinePrefix host(prefix), job("");
    std::string of_host, of_job;
    host.append(std::string(bytes, 'x') + "\n", of_host);
    job.append(of_host, of_job);
    CHECK(of_host.size() == bytes + (bytes + most - 1) / most * (prefix.size() + 1));
    CHECK(of_job == of_host);
  }
}
