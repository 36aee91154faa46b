// A program that compiles fmt and Asio for itself, as librondo.a does.
#include <fmt/format.h>
#include <rondo/communicator.h>
#include <asio/io_context.hpp>
#include <asio/post.hpp>

int main() {
  asio::io_context context;
  int runs = 0;
  asio::post(context, [&] { ++runs; });
  context.run();
  auto ranks = rondo::Communicator::inproc(1);
  double value = 2.5;
  ranks[0].all_reduce(&value, &value, 1, rondo::DType::kFloat64);
  return fmt::format("{} {}", runs, value) == "1 2.5" ? 0 : 1;
}
