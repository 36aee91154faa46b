#pragma once

namespace rondo {

// A queue of nodes that belong to others: it never allocates. T has members `T* next` and `T* previous`, and is
// in at most one list. One thread at a time.
template <typename T>
class NodeList {
 public:
  bool empty() const { return first_ == nullptr; }
  T* front() const { return first_; }
  T* back() const { return last_; }

  void push_back(T& node) {
    node.next = nullptr;
    node.previous = last_;
    (last_ ? last_->next : first_) = &node;
    last_ = &node;
  }

  // Requires that the node is in this list. Returns the one after it.
  T* remove(T& node) {
    T* after = node.next;
    (node.previous ? node.previous->next : first_) = node.next;
    (node.next ? node.next->previous : last_) = node.previous;
    node.next = node.previous = nullptr;
    return after;
  }

  T* pop_front() {
    T* node = first_;
    if (node) remove(*node);
    return node;
  }

 private:
  // Both null if the list is empty.
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace rondo
