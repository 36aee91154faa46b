#include "tests/life/door_asked.h"

#include <iomanip>
#include <memory>
#include <sstream>
#include <utility>

#include "tests/life/shape.h"
#include "tests/support/float_modes.h"

// What a line asks (door_asked.h): the words of an answer, and the failure of what was asked.
struct life_answer_t {
  rondo::life::Step values;
  rondo::Error error;
};

namespace rondo::life {
namespace {

life_ask_t ask_program = nullptr;

life_answer_t ask(const Step& question) {
  const testing::FloatMode mode(0);  // interpreters compute in this one
  life_answer_t answer;
  ask_program(print(question).c_str(), &answer);
  return answer;
}

int64_t number_of(const void* address) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address)); }

std::string precise(double value) {
  std::ostringstream text;
  text << std::setprecision(17) << value;
  return text.str();
}

std::string list_of(const std::vector<uint64_t>& numbers) {
  std::vector<std::string> words;
  for (const uint64_t number : numbers) words.push_back(std::to_string(number));
  return join_words(words, ",");
}

ErrorCode code_named(const std::string& name) {
  for (int code = 0; code < kErrorCodes; ++code) {
    if (name == error_code_name(static_cast<ErrorCode>(code))) return static_cast<ErrorCode>(code);
  }
  return ErrorCode::kInternal;
}

rondo::Message message_of(const Step& values) {
  return {static_cast<int>(values.number("peer", -1)), static_cast<int>(values.number("tag", -1)),
          static_cast<uint64_t>(values.number("bytes", -1)), static_cast<uint64_t>(values.number("matched"))};
}

void name_options(const CallOptions& options, Step& question) {
  const auto name = [&](const char* key, int64_t value) {
    if (value != 0) question.with(key, value);
  };
  if (options.algorithm != Algorithm::kAuto) question.with("algorithm", algorithm_name(options.algorithm));
  name("timeout", options.timeout.count());
  name("scalar", static_cast<int64_t>(options.scalar));
  name("synchronous", options.synchronous);
  name("recoverable", options.recoverable);
  if (options.wire.format != WireFormat::kNone) question.with("wire", wire_format_name(options.wire.format));
  name("stochastic", options.wire.stochastic);
  name("seed", static_cast<int64_t>(options.wire.seed));
  name("residual", number_of(options.wire.residual));
  if (options.user.function == nullptr) return;
  question.with("user", static_cast<int64_t>(reinterpret_cast<uintptr_t>(options.user.function)));
  question.with("context", number_of(options.user.context));
  name("commutative", options.user.commutative);
}

class AskedHandle final : public Handle {
 public:
  explicit AskedHandle(int64_t number) : number_(number) {}
  ~AskedHandle() override { ask(question("forget")); }
  bool done() override {
    const life_answer_t answer = ask(question("done"));
    return !answer.error.ok() || answer.values.number("done") != 0;
  }
  Error wait() override {
    life_answer_t answer = ask(question("wait"));
    message_ = message_of(answer.values);
    return answer.error;
  }
  void on_end(std::function<void()> function) override {
    ask(question("on_end").with("function", number_of(new std::function<void()>(std::move(function)))));
  }
  rondo::Message message() override { return message_; }

 private:
  Step question(const char* verb) const { return Step{verb, {}, {}, 0}.with("of", number_); }

  const int64_t number_;
  rondo::Message message_;
};

class AskedGroup final : public Group {
 public:
  explicit AskedGroup(int64_t number) : number_(number) {}
  ~AskedGroup() override { ask(question("forget")); }

  Error run(const Call& call, rondo::Message* message) override {
    const life_answer_t answer = ask(question_of(call));
    if (message != nullptr) *message = message_of(answer.values);
    return answer.error;
  }
  Error start(const Call& call, std::unique_ptr<Handle>* handle) override {
    return keep<AskedHandle>(question_of(call).with("start", 1), handle);
  }
  Error sparse(const float* in, float* out, uint64_t count, const SparseOptions& options) override {
    constexpr const char* kSelects[] = {"topk", "threshold"};
    Step asks = question("sparse");
    asks.with("in", number_of(in)).with("out", number_of(out)).with("count", static_cast<int64_t>(count));
    asks.with("select", kSelects[static_cast<int>(options.select)]).with("spars", precise(options.spars));
    asks.with("residual", number_of(options.residual)).with("timeout", options.timeout.count());
    return ask(asks.with("tensors", list_of({options.tensors.begin(), options.tensors.end()}))).error;
  }
  Error batch_begin() override { return ask(question("batch_begin")).error; }
  Error batch_end(std::unique_ptr<Handle>* handle) override {
    if (handle == nullptr) return ask(question("batch_end")).error;
    return keep<AskedHandle>(question("batch_end").with("start", 1), handle);
  }
  Error split(int color, int key, std::unique_ptr<Group>* group) override {
    return keep<AskedGroup>(question("split").with("color", color).with("key", key), group);
  }
  Error new_group(const std::vector<int>& ranks, std::unique_ptr<Group>* group) override {
    return keep<AskedGroup>(question("new_group").with("ranks", list_of({ranks.begin(), ranks.end()})), group);
  }
  Error attach_device() override { return ask(question("attach_device")).error; }
  Error shrink() override { return ask(question("shrink")).error; }
  Error grow(int newcomers) override { return ask(question("grow").with("newcomers", newcomers)).error; }
  Error commit(int64_t step, uint64_t digest) override {
    return ask(question("commit").with("step", step).with("digest", static_cast<int64_t>(digest))).error;
  }
  int64_t committed() override { return state("committed"); }
  uint64_t epoch() override { return static_cast<uint64_t>(state("epoch")); }
  int rank() override { return static_cast<int>(state("rank")); }
  int size() override { return static_cast<int>(state("size")); }
  void* allocate(size_t bytes) override {
    const life_answer_t answer = ask(question("allocate").with("bytes", static_cast<int64_t>(bytes)));
    if (!answer.error.ok()) throw Exception(answer.error);
    return reinterpret_cast<void*>(static_cast<uintptr_t>(answer.values.number("at")));
  }
  void deallocate(void* data) override { ask(question("deallocate").with("at", number_of(data))); }
  Error abort(const std::string& reason) override { return ask(question("abort").with("reason", reason)).error; }
  Error error() override { return ask(question("error")).error; }
  Error destroy() override { return ask(question("destroy")).error; }
  Error train() override { return ask(question("train")).error; }
  // An array has its length and type, and takes no more memory than there is.
  bool can_say(const std::string& mistake) override { return mistake != "user_bytes" && mistake != "length"; }

 private:
  Step question(const char* verb) const { return Step{verb, {}, {}, 0}.with("of", number_); }
  Step question_of(const Call& call) const;
  int64_t state(const char* what) { return ask(question("state")).values.number(what); }
  template <typename Kept, typename Base>
  static Error keep(const Step& asks, std::unique_ptr<Base>* kept) {
    const life_answer_t answer = ask(asks);
    if (answer.values.has("made")) *kept = std::make_unique<Kept>(answer.values.number("made"));
    return answer.error;
  }

  const int64_t number_;
};

Step AskedGroup::question_of(const Call& call) const {
  Step asks = question(verb_name(call.verb));
  asks.with("in", number_of(call.in)).with("out", number_of(call.out));
  asks.with("count", static_cast<int64_t>(call.count)).with("dtype", dtype_name(call.dtype));
  asks.with("op", op_name(call.op)).with("root", call.root).with("to", call.to).with("tag", call.tag);
  if (call.matched != 0) asks.with("matched", static_cast<int64_t>(call.matched));
  if (!call.counts.empty()) asks.with("counts", list_of(call.counts));
  if (!call.displacements.empty()) asks.with("displacements", list_of(call.displacements));
  std::vector<std::string> tensors;
  for (const TensorRef& tensor : call.tensors) {
    tensors.push_back(std::to_string(number_of(tensor.input)) + ":" + std::to_string(number_of(tensor.output)) + ":" +
                      std::to_string(tensor.count) + ":" + dtype_name(tensor.dtype));
  }
  if (!tensors.empty()) asks.with("tensors", join_words(tensors, ","));
  name_options(call.options, asks);
  return asks;
}

}  // namespace

void ask_by(life_ask_t ask) { ask_program = ask; }

Error join_asked(const Life& life, int process, const std::string& meeting, std::unique_ptr<Group>* group) {
  Step asks{"join", {}, {}, 0};
  asks.with("door", life.door(process)).with("seed", static_cast<int64_t>(life.seed));
  asks.with("rank", process).with("world", life.world).with("meeting", meeting);
  const life_answer_t answer = ask(asks);
  if (answer.error.ok()) *group = std::make_unique<AskedGroup>(answer.values.number("made"));
  return answer.error;
}

}  // namespace rondo::life

void life_answer(life_answer_t* answer, const char* values, const char* code, const char* ranks, const char* message) {
  using namespace rondo::life;
  answer->values = parse_step(values);
  if (code[0] == 0) return;
  answer->error = {code_named(code), message, {}};
  for (const std::string& rank : split_words(ranks, ',')) answer->error.ranks.push_back(std::stoi(rank));
}

void life_ended(void* function) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(function));
  (*owned)();
}
