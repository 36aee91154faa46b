#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace rondo::testing {

// Runs the body in a forked process and waits for it: what the body returns (0 to 255), or minus the signal that ended
// it. The test may have other threads, which the child has not.
int in_child(const std::function<int()>& body);

// What the body of a child sees of the test that forked it.
class Parent {
 public:
  Parent(int to_test, int from_test, unsigned lifetime_seconds)
      : to_test_(to_test), from_test_(from_test), lifetime_seconds_(lifetime_seconds) {}
  // One line: newlines become spaces.
  void say(const std::string& line) const;
  // The next line that the test says; ends the process if the test has ended.
  std::string await();
  // Readable when the test has said something, or has ended.
  int descriptor() const { return from_test_; }
  bool talks_by(int number) const { return number == to_test_ || number == from_test_; }

 private:
  int to_test_;
  int from_test_;
  unsigned lifetime_seconds_;
  std::string heard_;
};

// A process of the test's own, made by fork: the test has no other thread. It dies with the test, and after
// `lifetime_seconds` in any case. Lines go both ways. Its exit code is what the body returns, without destructors.
class Child {
 public:
  using Body = std::function<int(Parent& parent)>;

  explicit Child(const Body& body, unsigned lifetime_seconds = 60);
  ~Child();  // kills it if it still runs
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  // The next line that it says; "" at its end or after `ms`.
  std::string hear(int ms = 20'000);
  void tell(const std::string& line) const;
  void signal(int number) const;
  // Its exit code, or minus the signal that ended it.
  int wait();

 private:
  pid_t pid_ = -1;
  int from_child_ = -1;
  int to_child_ = -1;
  std::string heard_;
};

}  // namespace rondo::testing
