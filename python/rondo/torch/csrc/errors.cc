#include "csrc/errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "csrc/locked.h"
#include "csrc/operators.h"

namespace rondo_torch {

namespace {

// The ranks of this thread's last failure: " (ranks 1, 2)", or "".
std::string blamed_ranks() {
  std::vector<int> ranks(rondo_last_error_ranks(nullptr, 0));
  if (ranks.empty()) return "";
  rondo_last_error_ranks(ranks.data(), ranks.size());
  std::string text = ranks.size() == 1 ? " (rank " : " (ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text + ")";
}

// The last failures of other ranks: exceptions carry nothing but text.
constexpr size_t kMostKept = 16;  // calls under way fail together
Locked<std::deque<std::string>> kept;

// Bounded: a program that ignores failures does not gather texts.
void keep(const std::string& text) {
  kept.with([&](std::deque<std::string>& texts) {
    texts.push_back(text);
    if (texts.size() > kMostKept) texts.pop_front();
  });
}

}  // namespace

std::exception_ptr failure(rondo_result_t code) {
  const std::string text = rondo_last_error();
  if (code == RONDO_INVALID) {
    return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, __LINE__}, "rondo: " + text));
  }
  // Programs look for this word in the texts of torch's own backends.
  const char* word = code == RONDO_TIMEOUT ? ": the timeout passed: " : ": ";
  const std::string whole = std::string("rondo ") + rondo_result_name(code) + blamed_ranks() + word + text;
  if (code == RONDO_ABORTED || code == RONDO_PEER_LOST || code == RONDO_PEER_LEFT) keep(whole);
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, __LINE__}, whole));
}

bool is_of_others(const std::string& text) {
  return kept.with([&](const std::deque<std::string>& texts) {
    return std::any_of(texts.begin(), texts.end(), [&](const std::string& each) { return text.starts_with(each); });
  });
}

void raise(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::DistBackendError&) {  // of any code: the group may have failed before the handler raised
    operator_named<void()>("rondo::_raise_from_handler").call();
    throw;
  }
}

void check(rondo_result_t code) {
  if (code != RONDO_OK) [[unlikely]]
    raise(failure(code));
}

void fail(const std::string& text) { throw c10::DistBackendError({__func__, __FILE__, __LINE__}, "rondo: " + text); }

}  // namespace rondo_torch
