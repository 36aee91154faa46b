#include "ring/engine/run/time_exchange.h"

#include "ring/engine/run/gather_call.h"

namespace rondo {

TimeExchange::TimeExchange(const CommunicatorContext& context, const MakeRun& make_run)
    : rank_(static_cast<size_t>(context.rank)),
      call_(gather_of_bytes(context, sizeof(TimeRecord))),
      records_(context.members.size()),
      run_(make_run(call_)) {}

void TimeExchange::start(const TimeRecord& own, const RunStart& start) {
  records_[rank_] = own;
  RunStart gather = start;
  gather.input = reinterpret_cast<const std::byte*>(&records_[rank_]);
  gather.output = reinterpret_cast<std::byte*>(records_.data());
  run_->start(gather);
}

}  // namespace rondo
