#include "rondo/dist_opt.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"

using namespace rondo::c;

// Opaque to callers.
struct rondo_dist_opt {
  // `use` keeps the communicator's handle as long as the optimizer refers to it, also beyond rondo_destroy().
  rondo_dist_opt(rondo_comm_t comm, std::vector<rondo::NamedGradient> parameters, const rondo::DistOptOptions& options)
      : use(std::make_unique<InUse>(comm)), list(parameters), optimizer(**use, std::move(parameters), options) {}
  std::unique_ptr<InUse> use;
  // The parameters in the caller's order, for the array of rondo_dist_opt_load(). `optimizer` has a copy of its own.
  std::vector<rondo::NamedGradient> list;
  rondo::DistOpt optimizer;
};

namespace {

static_assert(RONDO_EXCHANGE_FLOAT32 == static_cast<int>(rondo::Exchange::kFloat32) &&
              RONDO_EXCHANGE_FLOAT16 == static_cast<int>(rondo::Exchange::kFloat16) &&
              RONDO_EXCHANGE_BFLOAT16 == static_cast<int>(rondo::Exchange::kBfloat16) &&
              RONDO_EXCHANGE_INT8 == static_cast<int>(rondo::Exchange::kInt8) &&
              RONDO_EXCHANGE_TOP_K == static_cast<int>(rondo::Exchange::kSparseTopK) &&
              RONDO_EXCHANGE_THRESHOLD == static_cast<int>(rondo::Exchange::kSparseThreshold) &&
              RONDO_EXCHANGE_PARTIAL_UPDATE == static_cast<int>(rondo::Exchange::kPartialUpdate) &&
              RONDO_EXCHANGE_LOCAL_SGD == static_cast<int>(rondo::Exchange::kLocalSgd));

rondo::Exchange exchange_of(rondo_exchange_t exchange) {
  if (exchange >= RONDO_EXCHANGE_FLOAT32 && exchange <= RONDO_EXCHANGE_LOCAL_SGD) {
    return static_cast<rondo::Exchange>(exchange);
  }
  throw rondo::Exception(rondo::ErrorCode::kInvalid, "unknown exchange " + std::to_string(exchange));
}

// NaN stands for the exchange's own default: C has no optional.
std::optional<double> spars_of(double spars) { return std::isnan(spars) ? std::nullopt : std::optional(spars); }

// The defaults of DistOptOptions as the C structure has them: read_struct() fills in fields that the caller
// does not know.
rondo_dist_opt_options_t defaults() {
  const rondo::DistOptOptions from;
  return {sizeof(rondo_dist_opt_options_t),
          from.spars.value_or(NAN),
          from.clip,
          from.outer_rate,
          from.outer_momentum,
          from.bucket_bytes,
          from.partition_bytes,
          from.every,
          static_cast<rondo_exchange_t>(from.exchange),
          from.residual,
          from.nesterov,
          static_cast<rondo_wire_format_t>(from.outer_wire),
          from.outer_delay,
          from.outer_fragments};
}

rondo::DistOptOptions options_of(const rondo_dist_opt_options_t* given_options) {
  if (given_options == nullptr) return {};
  const auto from = read_struct(given_options, defaults(), "options");
  return {.exchange = exchange_of(from.exchange),
          .spars = spars_of(from.spars),
          .residual = from.residual != 0,
          .clip = static_cast<float>(from.clip),
          .bucket_bytes = from.bucket_bytes,
          .partition_bytes = from.partition_bytes,
          .every = from.every,
          .outer_rate = static_cast<float>(from.outer_rate),
          .outer_momentum = static_cast<float>(from.outer_momentum),
          .nesterov = from.nesterov != 0,
          .outer_wire = wire_format_of(from.outer_wire),
          .outer_delay = from.outer_delay,
          .outer_fragments = from.outer_fragments};
}

// NULL: the caller does not want these numbers. `to` has from.size() elements, as the header says.
void copy(const std::vector<float>& from, float* to) {
  if (to != nullptr) std::copy(from.begin(), from.end(), to);
}

// NULL: none, as of an exchange that keeps no such numbers.
std::vector<float> copied(const float* from, uint64_t count) {
  return from == nullptr ? std::vector<float>() : std::vector<float>(from, from + count);
}

// `action` takes the rondo::DistOpt.
template <typename Action>
rondo_result_t with(rondo_dist_opt_t optimizer, Action action) noexcept {
  return guarded([&] { action(given(optimizer, "optimizer").optimizer); });
}

}  // namespace

extern "C" {

rondo_result_t rondo_dist_opt_defaults(rondo_dist_opt_options_t* options) {
  return guarded([&] { given(options, "options") = defaults(); });
}
rondo_result_t rondo_dist_opt_create(rondo_dist_opt_t* optimizer, rondo_comm_t comm,
                                     const rondo_parameter_t* parameters, size_t parameter_count,
                                     const rondo_dist_opt_options_t* options) {
  return guarded([&] {
    given(optimizer, "optimizer") = nullptr;
    std::vector<rondo::NamedGradient> list;
    for (const rondo_parameter_t& each : std::span(&given(parameters, "parameters"), parameter_count)) {
      list.push_back({&given(each.name, "a parameter's name"), each.parameter, nullptr, each.count});
    }
    // The broadcasts of the parameters are over when this returns; an interruption is still reported, and frees the
    // optimizer.
    auto made = std::make_unique<rondo_dist_opt>(comm, std::move(list), options_of(options));
    refuse_interrupted();
    *optimizer = made.release();
  });
}
rondo_result_t rondo_dist_opt_place(rondo_dist_opt_t optimizer, const char* name, float* gradient) {
  return with(optimizer, [&](rondo::DistOpt& on) { on.place(&given(name, "name"), gradient); });
}
rondo_result_t rondo_dist_opt_ready(rondo_dist_opt_t optimizer, const char* name, rondo_exchange_t exchange) {
  return with(optimizer,
              [&](rondo::DistOpt& on) { on.ready(&given(name, "name"), {.exchange = exchange_of(exchange)}); });
}
rondo_result_t rondo_dist_opt_reduce(rondo_dist_opt_t optimizer, rondo_exchange_t exchange, double spars) {
  return with(optimizer,
              [&](rondo::DistOpt& on) { on.reduce({.exchange = exchange_of(exchange), .spars = spars_of(spars)}); });
}
rondo_result_t rondo_dist_opt_average(rondo_dist_opt_t optimizer, rondo_exchange_t exchange) {
  return with(optimizer, [&](rondo::DistOpt& on) { on.average({.exchange = exchange_of(exchange)}); });
}
rondo_result_t rondo_dist_opt_wait(rondo_dist_opt_t optimizer) {
  return with(optimizer, [](rondo::DistOpt& on) { on.wait(); });
}
rondo_result_t rondo_dist_opt_regroup(rondo_dist_opt_t optimizer, rondo_comm_t next) {
  return with(optimizer, [&](rondo::DistOpt& on) {
    // The handle before is kept until regroup() has returned: the optimizer still refers to its communicator.
    const auto before = std::exchange(optimizer->use, std::make_unique<InUse>(next));
    on.regroup(**optimizer->use);
  });
}
rondo_result_t rondo_dist_opt_counts(rondo_dist_opt_t optimizer, uint64_t* steps, uint64_t* bytes_sent) {
  return with(optimizer, [&](rondo::DistOpt& on) {
    if (steps != nullptr) *steps = on.steps();
    if (bytes_sent != nullptr) *bytes_sent = on.bytes_sent();
  });
}
rondo_result_t rondo_dist_opt_save(rondo_dist_opt_t optimizer, const rondo_dist_opt_tensor_t* tensors) {
  return with(optimizer, [&](rondo::DistOpt& on) {
    static_cast<void>(given(tensors, "tensors"));
    const rondo::DistOptState state = on.save();
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      copy(state.tensors[i].residuals, tensors[i].residuals);
      copy(state.tensors[i].outer, tensors[i].outer);
      copy(state.tensors[i].momentum, tensors[i].momentum);
    }
  });
}
rondo_result_t rondo_dist_opt_load(rondo_dist_opt_t optimizer, const rondo_dist_opt_tensor_t* tensors, int world,
                                   uint64_t steps) {
  return with(optimizer, [&](rondo::DistOpt& on) {
    rondo::DistOptState state{.steps = steps, .world = world, .tensors = {}};
    const rondo_dist_opt_tensor_t* from = &given(tensors, "tensors");
    for (const rondo::NamedGradient& each : optimizer->list) {
      const uint64_t ranks = world > 0 ? static_cast<uint64_t>(world) : 0;
      state.tensors.push_back({each.name, copied(from->residuals, ranks * each.count), copied(from->outer, each.count),
                               copied(from->momentum, each.count)});
      ++from;
    }
    on.load(state);
  });
}
rondo_result_t rondo_dist_opt_free(rondo_dist_opt_t optimizer) {
  return guarded([&] { delete &given(optimizer, "optimizer"); });
}

}  // extern "C"
