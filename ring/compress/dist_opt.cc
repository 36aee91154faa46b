#include "rondo/dist_opt.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "kernels/machine.h"
#include "kernels/wire_codec.h"
#include "ring/compress/compound_call.h"
#include "ring/compress/dist_opt_options.h"

namespace rondo {

using namespace dist_opt;

namespace {

// Neighbors of at most `bytes` together, or one gradient that is longer, in the order given.
std::vector<std::vector<size_t>> grouped(const std::vector<NamedGradient>& gradients, const std::vector<size_t>& order,
                                         uint64_t bytes) {
  std::vector<std::vector<size_t>> groups;
  uint64_t room = 0;
  for (const size_t i : order) {
    // Cannot wrap: check() has bounded the sum of all counts.
    const uint64_t needed = gradients[i].count * sizeof(float);
    if (groups.empty() || needed > room) {
      groups.emplace_back();
      room = bytes;
    }
    groups.back().push_back(i);
    room -= std::min(room, needed);
  }
  return groups;
}

// Any thread of the program's, in any mode.
void clip(float* values, uint64_t count, float limit) {
  const DefaultFloatMode mode;
  for (uint64_t i = 0; i < count; ++i) values[i] = std::clamp(values[i], -limit, limit);
}

// False: it is under way, and cannot be waited for here, as in an end function. Its failure stays the communicator's.
bool finish(Work& exchange) noexcept {
  try {
    if (exchange.valid()) exchange.wait();
  } catch (const std::exception&) {
  }
  return !exchange.valid() || exchange.done();
}

}  // namespace

DistOpt::DistOpt(Communicator& group, std::vector<NamedGradient> gradients, const DistOptOptions& options)
    : group_(&group), gradients_(std::move(gradients)), options_(options), places_(gradients_.size()) {
  CompoundCall::run(group, Purpose::kDistOpt, "DistOpt", [this](const CompoundCall& call) {
    check(*group_, gradients_, options_);
    make_buckets();
    for (const NamedGradient& g : gradients_) {
      if (options_.exchange != Exchange::kLocalSgd) break;
      // Local SGD: the parameters at the last average, from which changes are counted, and the momentum of the outer
      // step.
      outer_.emplace_back(g.parameter, g.parameter + g.count);
      momentum_.emplace_back(g.count);
    }
    agree(call);
  });
}

// Buckets take the gradients from the list's end, as a backward pass finishes them. Partitions take the parameters in
// the list's order. A bucket is at most a fragment's share long, so that fragments come out about equal.
void DistOpt::make_buckets() {
  std::vector<size_t> order;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    order.push_back(i);
    if (!index_by_name_.emplace(gradients_[i].name, i).second) {
      refuse(*group_, fmt::format("there are two gradients \"{}\"", gradients_[i].name));
    }
  }
  partitions_ = grouped(gradients_, order, options_.partition_bytes);
  std::reverse(order.begin(), order.end());
  uint64_t total = 0;
  for (const NamedGradient& g : gradients_) total += g.count;
  const uint64_t fragments = options_.outer_fragments, fragment_bytes = (total / fragments + 1) * sizeof(float);
  for (std::vector<size_t>& members : grouped(gradients_, order, std::min(options_.bucket_bytes, fragment_bytes))) {
    Bucket& bucket = buckets_.emplace_back();
    uint64_t elements = 0;
    for (const size_t i : members) {
      places_[i] = {buckets_.size() - 1, elements, false};
      elements += gradients_[i].count;
    }
    bucket.missing = members.size();
    bucket.members = std::move(members);
    bucket.values.resize(elements);
    bucket.residual.resize(elements);
  }
  // A bucket belongs to the fragment in which its middle lies.
  fragments_.resize(fragments);
  uint64_t before = 0;
  auto next = buckets_.begin();
  for (uint64_t f = 0; f < fragments; ++f) {
    const auto first = next;
    const uint64_t end = f + 1 < fragments ? total * (f + 1) / fragments : UINT64_MAX;
    for (; next != buckets_.end() && before + next->values.size() / 2 < end; ++next) before += next->values.size();
    fragments_[f].buckets = {first, next};
  }
}

// All ranks take over what those have that have come furthest, and keep what is as new.
void DistOpt::agree(const CompoundCall& call) {
  // Each rank says its version of every fragment, and its number of steps as the last word.
  const size_t ranks = static_cast<size_t>(call.size()), words = fragments_.size() + 1;
  std::vector<uint64_t> own(words, steps_), all(words * ranks);
  for (size_t f = 0; f < fragments_.size(); ++f) own[f] = fragments_[f].version;
  call->all_gather(own.data(), all.data(), words, DType::kUint64, call.options());
  for (size_t f = 0; f < words; ++f) {
    uint64_t newest = 0, oldest = UINT64_MAX;
    int root = 0;
    for (size_t r = 0; r < ranks; ++r) {
      const uint64_t version = all[r * words + f];
      // The lowest rank among the newest is the root; with newest 0 it is rank 0, whose parameters all ranks take.
      if (version > newest) root = static_cast<int>(r);
      newest = std::max(newest, version);
      oldest = std::min(oldest, version);
    }
    if (f + 1 == words) {
      steps_ = newest;
    } else if (oldest < newest || newest == 0) {
      take_over(call, fragments_[f], root, own[f] < newest || newest == 0);
      // Version 0 means that a rank has not taken over the others' parameters yet.
      fragments_[f].version = std::max<uint64_t>(newest, 1);
    }
  }
}

// Nothing of the fragment is changed before all of it is there: a rank may die in between.
void DistOpt::take_over(const CompoundCall& call, Fragment& fragment, int root, bool lags) {
  const bool outer = !outer_.empty(), moves = outer && options_.outer_momentum != 0;
  for (Bucket& bucket : fragment.buckets) {
    // `values` and `sent` carry parameters and momentum here: no exchange of gradients is under way.
    if (moves) bucket.sent.resize(bucket.values.size());
    for (const size_t i : bucket.members) {
      const uint64_t at = places_[i].offset;
      std::copy_n(outer ? outer_[i].data() : gradients_[i].parameter, gradients_[i].count, bucket.values.data() + at);
      if (moves) std::copy_n(momentum_[i].data(), gradients_[i].count, bucket.sent.data() + at);
    }
    call->broadcast(bucket.values.data(), bucket.values.size(), DType::kFloat32, root, call.options());
    if (moves) call->broadcast(bucket.sent.data(), bucket.sent.size(), DType::kFloat32, root, call.options());
  }
  if (!lags) return;
  for (Bucket& bucket : fragment.buckets) {
    for (const size_t i : bucket.members) {
      const float* from = bucket.values.data() + places_[i].offset;
      std::copy_n(from, gradients_[i].count, gradients_[i].parameter);
      if (outer) std::copy_n(from, gradients_[i].count, outer_[i].data());
      if (moves) std::copy_n(bucket.sent.data() + places_[i].offset, gradients_[i].count, momentum_[i].data());
    }
  }
}

// A call that is refused (in an end function, say) leaves all as it was.
void DistOpt::regroup(Communicator& next) {
  CompoundCall::run(next, Purpose::kDistOpt, "DistOpt::regroup", [&](const CompoundCall& call) {
    begin_again();
    group_ = &next;
    agree(call);
  });
}

DistOpt::~DistOpt() {
  for (Bucket& bucket : buckets_) {
    if (!finish(bucket.work)) leave(std::move(bucket));
  }
}

// Keeps the memory of an exchange until its end.
void DistOpt::leave(Bucket bucket) noexcept {
  try {
    const auto left = std::make_shared<Bucket>(std::move(bucket));  // shared with the function
    left->work.on_end([left](const Error&) {});
  } catch (const std::exception&) {  // in a forked child: the exchange is the parent's
  }
}

size_t DistOpt::index_of(const std::string& name) const {
  const auto found = index_by_name_.find(name);
  if (found == index_by_name_.end()) refuse(*group_, fmt::format("there is no gradient \"{}\"", name));
  return found->second;
}

// --- gradients

void DistOpt::place(const std::string& name, float* gradient) { gradients_[index_of(name)].gradient = gradient; }

// Exchanges begin in the order of the buckets, the same on all ranks: a bucket that is full waits for those before it.
void DistOpt::ready(const std::string& name, const StepOptions& step) {
  const Exchange exchange = exchange_of(*group_, step.exchange, options_.exchange);
  CompoundCall::run(*group_, Purpose::kDistOpt, "DistOpt::ready", [&](const CompoundCall& call) {
    const size_t i = index_of(name);
    if (after_update(exchange) || sparse(exchange)) return;
    if (places_[i].ready)
      refuse(*group_, fmt::format("the gradient \"{}\" is ready a second time before step()", name));
    refuse_another(exchange);
    fill(i);
    begun_as_ = exchange;
    while (begun_ < buckets_.size() && buckets_[begun_].missing == 0) begin(call, buckets_[begun_++], exchange);
  });
}

// One residual a bucket: it belongs either to the gradients or to the parameters' changes.
void DistOpt::refuse_another(Exchange exchange) const {
  if (exchange != Exchange::kLocalSgd) refuse_meanwhile("another exchange");
  if (options_.outer_wire != WireFormat::kNone && options_.residual &&
      (exchange == Exchange::kInt8 || sparse(exchange))) {
    refuse(*group_, "this exchange keeps a residual of gradients, and outer_wire one of the parameters' changes");
  }
  if (begun_ == 0 || exchange == begun_as_) return;
  refuse(*group_, "another exchange for this step comes too late: ready() has begun the one before");
}

// Copies the gradient, clipped, into its bucket. The caller may change the gradient again once this has returned.
void DistOpt::fill(size_t gradient) {
  Place& place = places_[gradient];
  Bucket& bucket = buckets_[place.bucket];
  const NamedGradient& g = gradients_[gradient];
  if (g.count > 0 && g.gradient == nullptr) refuse(*group_, fmt::format("the gradient \"{}\" is null", g.name));
  float* to = bucket.values.data() + place.offset;
  std::copy_n(g.gradient, g.count, to);
  if (options_.clip > 0) clip(to, g.count, options_.clip);
  place.ready = true;
  --bucket.missing;
}

// In the order of the buckets, which all ranks have.
void DistOpt::begin(const CompoundCall& call, Bucket& bucket, Exchange exchange) {
  CallOptions options = call.options();
  options.wire.format = format_of(exchange, options_);
  const bool outer = exchange == Exchange::kLocalSgd && options_.outer_wire != WireFormat::kNone;
  const bool keeps = (exchange == Exchange::kInt8 || outer) && options_.residual;
  options.wire.residual = keeps ? bucket.residual.data() : nullptr;
  float* values = bucket.values.data();
  bucket.work = call->all_reduce_async(values, values, bucket.values.size(), DType::kFloat32, Op::kAverage, options);
  count_sent(bucket.values.size(), options.wire.format);
}

// What a ring sends, by whatever algorithm the exchange runs: 2 (world - 1) / world of the elements.
void DistOpt::count_sent(uint64_t elements, WireFormat format) {
  const double world = group_->size(), element_bytes = static_cast<double>(wire_block_bytes(format)) / kWireBlock;
  bytes_sent_ += static_cast<uint64_t>(2 * (world - 1) / world * static_cast<double>(elements) * element_bytes);
}

// sparse_all_reduce() sums; the mean is made here. Blocking, so buckets of a sparse exchange do not overlap.
void DistOpt::reduce_sparse(Bucket& bucket, Exchange exchange, double spars) {
  SparseOptions options;
  options.select = exchange == Exchange::kSparseThreshold ? Select::kThreshold : Select::kTopK;
  options.spars = spars;
  options.residual = options_.residual ? bucket.residual.data() : nullptr;
  std::vector<uint64_t> counts;
  for (const size_t i : bucket.members) counts.push_back(gradients_[i].count);
  options.tensors = counts;
  float* values = bucket.values.data();
  bytes_sent_ += sparse_all_reduce(*group_, values, values, bucket.values.size(), options).bytes_sent;
  const float share = 1.0f / static_cast<float>(group_->size());
  for (float& value : bucket.values) value *= share;
}

// The error of a bucket's exchange, with its element counted in the gradient. One that names no element of the bucket,
// as the error of an earlier call, stays as it is.
Error DistOpt::in_gradient(Error error, const Bucket& bucket) const {
  static constexpr std::string_view kBefore = "element ";
  const size_t found = error.message.find(kBefore);
  if (found == std::string::npos) return error;
  const char* first = error.message.data() + found + kBefore.size();
  uint64_t element = 0;
  const auto [end, code] = std::from_chars(first, error.message.data() + error.message.size(), element);
  if (code != std::errc()) return error;
  for (const size_t i : bucket.members) {
    if (element < places_[i].offset || element - places_[i].offset >= gradients_[i].count) continue;
    const std::string named = fmt::format("{} of \"{}\"", element - places_[i].offset, gradients_[i].name);
    error.message.replace(found + kBefore.size(), static_cast<size_t>(end - first), named);
    break;
  }
  return error;
}

// No gradient is ready, and no exchange is under way.
void DistOpt::begin_again() noexcept {
  for (Bucket& bucket : buckets_) {
    finish(bucket.work);
    bucket.work = Work();
    bucket.missing = bucket.members.size();
  }
  begun_ = 0;
  for (Fragment& fragment : fragments_) fragment.due.reset();
  for (Place& place : places_) place.ready = false;
}

void DistOpt::exchange_gradients(const CompoundCall& call, Exchange exchange, double spars) {
  // Also after an exception: no gradient stays ready, and no exchange under way.
  const auto at_the_end = [](DistOpt* optimizer) { optimizer->begin_again(); };
  const std::unique_ptr<DistOpt, decltype(at_the_end)> again(this, at_the_end);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (!places_[i].ready) fill(i);
  }
  while (!sparse(exchange) && begun_ < buckets_.size()) begin(call, buckets_[begun_++], exchange);
  end_all(buckets_,
          [&](Bucket& bucket) { sparse(exchange) ? reduce_sparse(bucket, exchange, spars) : bucket.work.wait(); });
}

// Ends the exchange of each bucket. All buckets, though one is not finite: the ranks make the same calls.
void DistOpt::end_all(std::span<Bucket> buckets, const std::function<void(Bucket&)>& end) {
  std::optional<Error> failure;
  for (Bucket& bucket : buckets) {
    try {
      end(bucket);
    } catch (const Exception& e) {
      if (e.code() != ErrorCode::kNotFinite) throw;
      if (!failure) failure = in_gradient(e.error(), bucket);
    }
  }
  if (failure) throw Exception(*failure);
}

// The means from the buckets into the caller's gradients. Only after all exchanges have succeeded.
void DistOpt::copy_back() {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const float* from = buckets_[places_[i].bucket].values.data() + places_[i].offset;
    std::copy_n(from, gradients_[i].count, gradients_[i].gradient);
  }
}

void DistOpt::step(const Update& update, const StepOptions& step) {
  for (const NamedGradient& g : gradients_) {
    if (g.count > 0 && g.gradient == nullptr) refuse(*group_, fmt::format("the gradient \"{}\" is null", g.name));
  }
  reduce(step);
  for (const NamedGradient& g : gradients_) update(g);
  average(step);
}

void DistOpt::reduce(const StepOptions& step) {
  const Exchange exchange = exchange_of(*group_, step.exchange, options_.exchange);
  CompoundCall::run(*group_, Purpose::kDistOpt, "DistOpt::step", [&](const CompoundCall& call) {
    const double spars = spars_of(*group_, exchange, step.spars.has_value() ? step.spars : options_.spars);
    refuse_another(exchange);
    // Changes of parameters travel in the buckets: the gradients stay this rank's own until they arrive.
    if (due()) return;
    if (after_update(exchange)) return begin_again();  // gradients that are ready are not sent
    exchange_gradients(call, exchange, spars);
    copy_back();
  });
  if (!after_update(exchange) || options_.clip == 0) return;
  for (const NamedGradient& g : gradients_) {
    if (g.gradient != nullptr) clip(g.gradient, g.count, options_.clip);
  }
}

void DistOpt::average(const StepOptions& step) {
  const Exchange exchange = exchange_of(*group_, step.exchange, options_.exchange);
  if (after_update(exchange)) {
    CompoundCall::run(*group_, Purpose::kDistOpt, "DistOpt::step",
                      [&](const CompoundCall& call) { average_parameters(call, exchange); });
  }
  ++steps_;
  // Without local SGD there is one fragment, whose parameters change with every step.
  if (outer_.empty()) fragments_[0].version = steps_ + 1;
}

// The works stay: step() waits for them again, and learns of their errors there.
void DistOpt::wait() {
  for (Bucket& bucket : buckets_) {
    if (bucket.work.valid()) bucket.work.wait();
  }
}

// --- parameters

// kPartialUpdate averages one partition a step, in turn. kLocalSgd averages all parameters every `every` steps.
void DistOpt::average_parameters(const CompoundCall& call, Exchange exchange) {
  const bool partial = exchange == Exchange::kPartialUpdate;
  if (!partial && !outer_.empty()) return average_changes(call);
  if (!partial && (steps_ + 1) % options_.every != 0) return;
  std::vector<TensorRef> tensors;
  const auto add = [&](size_t i) {
    const NamedGradient& g = gradients_[i];
    tensors.push_back({g.parameter, g.parameter, g.count, DType::kFloat32});
    count_sent(g.count, WireFormat::kNone);
  };
  if (partial) {
    for (const size_t i : partitions_[steps_ % partitions_.size()]) add(i);
  } else {
    for (size_t i = 0; i < gradients_.size(); ++i) add(i);
  }
  call->all_reduce_many(tensors, Op::kAverage, call.options());
}

// The ranks have equal parameters of the last average, and add equal changes to them. Fragments begin `every` /
// outer_fragments steps apart, the first one in steps that `every` divides.
void DistOpt::average_changes(const CompoundCall& call) {
  end_changes(steps_);
  for (size_t f = 0; f < fragments_.size(); ++f) {
    if ((steps_ + 1 + f * options_.every / fragments_.size()) % options_.every == 0) begin_changes(call, fragments_[f]);
  }
  if (options_.outer_delay == 0) end_changes(steps_);
}

// action(parameter, that of the last average, its place in `values`, in `sent`).
template <typename Action>
void DistOpt::for_each_value(const Fragment& fragment, Action action) {
  for (Bucket& bucket : fragment.buckets) {
    for (const size_t i : bucket.members) {
      for (size_t e = 0; e < gradients_[i].count; ++e) {
        const size_t place = places_[i].offset + e;
        action(gradients_[i].parameter[e], outer_[i][e], bucket.values[place], bucket.sent[place]);
      }
    }
  }
}

// Sends the change of each parameter since the last average. `sent` keeps the parameters, so that what later steps add
// is not lost when the average arrives.
void DistOpt::begin_changes(const CompoundCall& call, Fragment& fragment) {
  for (Bucket& bucket : fragment.buckets) bucket.sent.resize(bucket.values.size());
  for_each_value(fragment, [](float parameter, float last, float& change, float& sent) {
    sent = parameter;
    change = parameter - last;
  });
  for (Bucket& bucket : fragment.buckets) begin(call, bucket, Exchange::kLocalSgd);
  fragment.due = steps_ + options_.outer_delay;
}

// Ends the changes that are due at the end of this step; nothing: all that travel. After an error nothing travels.
void DistOpt::end_changes(std::optional<uint64_t> step) {
  for (Fragment& fragment : fragments_) {
    if (!fragment.due || (step && fragment.due != step)) continue;
    try {
      end_changes(fragment);
    } catch (...) {
      begin_again();
      throw;
    }
  }
}

// Parameter = the mean change after the outer step, plus what this rank's steps have added since the change was sent.
void DistOpt::end_changes(Fragment& fragment) {
  fragment.due.reset();
  end_all(fragment.buckets, [](Bucket& bucket) { bucket.work.wait(); });
  for_each_value(fragment, [](float& parameter, float last, float change, float& sent) {
    sent = parameter - sent;
    parameter = last + change;
  });
  for (const Bucket& bucket : fragment.buckets) {
    for (const size_t i : bucket.members) outer_step(i);
  }
  for_each_value(fragment, [](float& parameter, float, float, float since) { parameter += since; });
  ++fragment.version;
}

// The last step at whose end changes that travel now arrive; nothing: none travel.
std::optional<uint64_t> DistOpt::due() const {
  std::optional<uint64_t> last;
  for (const Fragment& fragment : fragments_) last = std::max(last, fragment.due);
  return last;
}

void DistOpt::refuse_meanwhile(const char* what) const {
  if (const auto last = due()) {
    refuse(*group_, fmt::format("{} while the parameters' changes travel, until step {}", what, *last));
  }
}

// SGD with momentum on the change since the last average. Rate 1 without momentum takes the mean change as it is.
void DistOpt::outer_step(size_t gradient) {
  float* parameter = gradients_[gradient].parameter;
  std::vector<float>&last = outer_[gradient], &velocity = momentum_[gradient];
  const float rate = options_.outer_rate, momentum = options_.outer_momentum;
  if (rate != 1 || momentum != 0) {
    for (size_t i = 0; i < last.size(); ++i) {
      const float change = parameter[i] - last[i];
      velocity[i] = momentum * velocity[i] + change;
      parameter[i] = last[i] + rate * (options_.nesterov ? change + momentum * velocity[i] : velocity[i]);
    }
  }
  std::copy_n(parameter, last.size(), last.begin());
}

}  // namespace rondo
