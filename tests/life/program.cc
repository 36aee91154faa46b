#include "tests/life/program.h"

#include <algorithm>

#include "tests/life/model.h"

namespace rondo::life {
namespace {

// What every program begins with.
constexpr char kPrelude[] = R"(#include <rondo/communicator.h>
#include <rondo/sparse.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace rondo;

struct Thread {  // of a rank
  Communicator* job = nullptr;
  std::map<int, Communicator> groups;  // but group 0
  std::map<int, Work> works;
  std::map<std::pair<int, int>, std::vector<char>> memory;  // by line and use
  std::map<std::pair<int, int>, std::pair<void*, size_t>> registered;
  unsigned hash = 0;

  Communicator* group(int number) {
    if (number == 0) return job;
    const auto found = groups.find(number);
    return found == groups.end() || !found->second.valid() ? nullptr : &found->second;
  }
  // where: "r+3" is 3 bytes behind the beginning of registered memory; one place, or one for each rank.
  char* at(Communicator& g, int line, int use, std::vector<std::string> where, size_t bytes) {
    const std::string& mine = where[static_cast<size_t>(g.rank()) % where.size()];
    const size_t offset = mine.size() > 2 ? std::stoul(mine.substr(2)) : 0;
    char* data = nullptr;
    if (mine[0] == 'r') {
      auto& [piece, size] = registered[{line, use}];
      if (size < offset + bytes) piece = job->allocate(size = offset + bytes + 1);
      data = static_cast<char*>(piece) + offset;
    } else {
      auto& piece = memory[{line, use}];
      piece.resize(offset + bytes + 1);
      data = piece.data() + offset;
    }
    for (size_t i = 0; use == 0 && i < bytes; ++i) data[i] = static_cast<char>((i * 7 + static_cast<size_t>(g.rank())) % 60);
    return data;
  }
  void saw(const char* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) hash = hash * 31 + static_cast<unsigned char>(data[i]);
  }
};

template <typename Function>
void attempt(const char* what, Communicator& g, const Function& function) {
  try {
    function();
  } catch (const Exception& error) {
    std::printf("rank %d, %s: %s %s\n", g.rank(), what, error_code_name(error.code()), error.what());
    throw;
  }
}

)";

std::string quoted_list(const Step& step, const std::string& key) {
  std::vector<std::string> words = step.words(key);
  if (words.empty()) words = {"p"};
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "\"" : ", \"") + word + "\"";
  return "{" + text + "}";
}

class Writer {
 public:
  std::string text;

  void steps(const std::vector<Step>& list, const std::string& indent) {
    for (const Step& step : list) one(step, indent);
  }

 private:
  void line(const std::string& indent, const std::string& words) { text += indent + words + "\n"; }

  void one(const Step& step, const std::string& indent) {
    const std::string g = step.word("group", "0");
    if (step.verb == "repeat") {
      line(indent, "for (int i = 0; i < " + step.word("times") + "; ++i) {");
      steps(step.inner, indent + "  ");
      return line(indent, "}");
    }
    line(indent, "// " + print(step));
    if (step.verb == "disagree" && step.inner.size() == 2) {
      line(indent, "if (Communicator* d = t.group(" + g + ")) {");
      line(indent, "  if (d->rank() != " + step.word("odd") + " % d->size()) {");
      one(step.inner[0], indent + "    ");
      line(indent, "  } else {");
      one(step.inner[1], indent + "    ");
      line(indent, "  }");
      return line(indent, "}");
    }
    if (step.verb == "wait" || step.verb == "poll" || step.verb == "drop_work") {
      return line(indent, "if (t.works[" + step.word("slot") + "].valid()) t.works[" + step.word("slot") + "].wait();");
    }
    const std::string body = call(step);
    if (body.empty()) return;
    line(indent, "if (Communicator* g = t.group(" + g + ")) attempt(\"" + step.verb + "\", *g, [&] {");
    line(indent, "  [[maybe_unused]] const int n = g->size(), m = g->rank();");
    line(indent, body);
    line(indent, "});");
  }

  static std::string type(const Step& step) {
    return "DType(" + std::to_string(static_cast<int>(dtype_named(step.word("dtype", "uint8")))) + ")";
  }

  // `bytes` of input and of output, in terms of n.
  static std::string buffers(const Step& step, const std::string& in, const std::string& out) {
    const std::string line = std::to_string(step.line);
    if (step.number("place") != 0) {
      return "  char* out = t.at(*g, " + line + ", 1, " + quoted_list(step, "out") + ", " + out + " + " + in + "); ";
    }
    return "  char* in = t.at(*g, " + line + ", 0, " + quoted_list(step, "in") + ", " + in +
           "); char* out = t.at(*g, " + line + ", 1, " + quoted_list(step, "out") + ", " + out + "); ";
  }

  static std::string call(const Step& step) {
    const std::string& verb = step.verb;
    const std::string as = step.word("as");
    if (verb == "split") {
      const auto by_member = [&](const char* key) {
        std::string list = step.word(key, "0");
        return "std::vector<int>{" + list + "}[m % " + std::to_string(std::max<size_t>(1, step.words(key).size())) +
               "]";
      };
      const std::string made = "g->split(" + by_member("color") + ", " + by_member("key") + ")";
      return as.empty() ? "  Communicator part = " + made + ";" : "  t.groups[" + as + "] = " + made + ";";
    }
    if (verb == "new_group") {
      const std::string ranks = "std::vector<int>{" + step.word("ranks") + "}";
      return "  for (int r : " + ranks + ") if (r == m) t.groups[" + as + "] = g->new_group(" + ranks + ");";
    }
    if (verb == "drop") return "  t.groups.erase(" + step.word("group") + ");";
    if (verb == "attach") return "  g->attach_device();";
    if (verb == "barrier") return "  g->barrier();";
    if (verb == "sparse") {
      return "  std::vector<float> x(" + step.word("count") +
             ", 1.0f + float(m)); sparse_all_reduce(*g, x.data(), x.data(), x.size(), {.spars = " +
             step.word("spars", "0.05") + "});";
    }
    if (verb == "exchange") return messages(step);
    return collective(step);
  }

  static std::string messages(const Step& step) {
    std::string text = "  std::vector<Work> works; int k = 0;\n";
    const bool blocking = step.word("mode") == "blocking";
    const std::string end = blocking ? "" : "_async",
                      size = std::to_string(dtype_bytes(dtype_named(step.word("dtype", "uint8"))));
    for (const std::string& message : step.words("messages", ';')) {
      const std::string src = message.substr(0, message.find('>')),
                        dst = message.substr(message.find('>') + 1, message.find(':') - message.find('>') - 1);
      const std::string rest = message.substr(message.find(':') + 1), tag = rest.substr(0, rest.find(':')),
                        count = rest.substr(rest.find(':') + 1);
      const std::string to = dst + " % n", from = src + " % n";
      const auto one = [&](const std::string& what, const std::string& use, const std::string& key,
                           const std::string& peer) {
        const std::string memory = "t.at(*g, " + std::to_string(step.line) + " + 1000 * ++k, " + use + ", " +
                                   quoted_list(step, key) + ", " + count + " * " + size + ")";
        const std::string made =
            "g->" + what + end + "(" + memory + ", " + count + ", " + type(step) + ", " + peer + ", " + tag + ")";
        return blocking ? made + ";" : "works.push_back(" + made + ");";
      };
      text += "  if (" + from + " != " + to + " && m == " + from + ") " + one("send", "0", "in", to) + "\n";
      text += "  if (" + from + " != " + to + " && m == " + to + ") " + one("recv", "1", "out", from) + "\n";
    }
    return text + "  for (Work& work : works) work.wait();";
  }

  static std::string collective(const Step& step) {
    const std::string& verb = step.verb;
    const DType dtype = dtype_named(step.words("dtype").empty() ? "uint8" : step.words("dtype")[0]);
    const std::string count = step.word("count", "0"), one = count + " * " + std::to_string(dtype_bytes(dtype)),
                      all = one + " * n";
    const std::string root = step.word("root", "0") + " % n";
    const bool inside = step.number("place") != 0;
    const std::string block = "out + m * " + one;
    const std::string op = "Op(" + std::to_string(static_cast<int>(op_named(step.word("op", "sum")))) + ")";
    const std::string options = "CallOptions{.algorithm = Algorithm(" +
                                std::to_string(static_cast<int>(algorithm_named(step.word("algorithm", "auto")))) +
                                "), .wire = {.format = WireFormat(" +
                                std::to_string(static_cast<int>(wire_format_named(step.word("wire", "none")))) + ")}}";
    std::string in_bytes = one, out_bytes = one, in = inside ? "out" : "in", out = "out", tail;
    if (verb == "all_reduce" || verb == "scan" || verb == "exscan") {
      tail = op + ", ";
    } else if (verb == "reduce") {
      tail = op + ", " + root + ", ";
    } else if (verb == "all_gather" || verb == "gather") {
      out_bytes = all;
      if (inside) in = verb == "gather" ? "m == " + root + " ? " + block + " : out" : block;
      if (verb == "gather") tail = root + ", ";
    } else if (verb == "reduce_scatter" || verb == "scatter") {
      in_bytes = all;
      if (inside) out = verb == "scatter" ? "m == " + root + " ? " + block + " : out" : block;
      tail = verb == "scatter" ? root + ", " : op + ", ";
    } else if (verb == "all_to_all") {
      in_bytes = out_bytes = all;
      if (inside) in = "out + " + all;  // it has no form in place
    } else if (verb != "broadcast") {
      return "";
    }
    std::string name = verb, before, after = "; t.saw(out, " + out_bytes + ");";
    if (step.has("slot")) {
      name += "_async";
      before = "if (t.works[" + step.word("slot") + "].valid()) t.works[" + step.word("slot") + "].wait(); t.works[" +
               step.word("slot") + "] = ";
      after = ";";
    }
    const std::string arguments = verb == "broadcast"
                                      ? "out, " + count + ", " + type(step) + ", " + root + ", " + options
                                      : in + ", " + out + ", " + count + ", " + type(step) + ", " + tail + options;
    return buffers(step, in_bytes, out_bytes) + "\n  " + before + "g->" + name + "(" + arguments + ")" + after;
  }
};

}  // namespace

std::string program_of(const Life& life) {
  const Life numbered = parse(print(life));
  const std::string world = std::to_string(life.world), threads = std::to_string(life.threads.size());
  std::string text = "// What is left of the life of seed " + std::to_string(life.seed) + ", " + world + " ranks.\n";
  for (const std::string& setting : life.settings) text += "// export " + setting + "\n";
  text += std::string("// g++ -std=c++20 life.cc $(pkg-config --cflags --libs rondo) -pthread -o life; ") +
          (life.ranks == Ranks::kThreads ? "./life\n" : "rondo-run -n " + world + " ./life\n") + kPrelude;
  for (size_t t = 0; t < numbered.threads.size(); ++t) {
    Writer writer;
    writer.steps(numbered.threads[t], "  ");
    text += "void thread_" + std::to_string(t) + "([[maybe_unused]] Thread& t) {\n" + writer.text + "}\n\n";
  }
  text += "void rank(Communicator job) {\n  Communicator parts[" + threads + "];\n";
  for (size_t t = 1; t < numbered.threads.size(); ++t) {
    text += "  parts[" + std::to_string(t) + "] = job.split(0, job.rank());\n";
  }
  text += "  std::vector<std::thread> threads;\n";
  for (size_t t = 0; t < numbered.threads.size(); ++t) {
    const std::string number = std::to_string(t);
    text += "  threads.emplace_back([&] {\n    Thread t;\n    t.job = " +
            (t == 0 ? std::string("&job") : "&parts[" + number + "]") + ";\n    try {\n      thread_" + number +
            "(t);\n      for (auto& [slot, work] : t.works) if (work.valid()) work.wait();\n" +
            "    } catch (const Exception&) {\n      t.job->abort(\"it failed on another rank\");\n    }\n" +
            "    std::printf(\"rank %d, thread " + number + ": hash %08x\\n\", job.rank(), t.hash);\n  });\n";
  }
  text += "  for (std::thread& thread : threads) thread.join();\n}\n\nint main() {\n";
  if (life.ranks == Ranks::kThreads) {
    return text + "  std::vector<std::thread> ranks;\n  for (Communicator& job : Communicator::inproc(" + world +
           ", Config::from_environment())) {\n    ranks.emplace_back(rank, std::move(job));\n  }\n"
           "  for (std::thread& thread : ranks) thread.join();\n}\n";
  }
  return text + "  rank(Communicator::join());\n}\n";
}

}  // namespace rondo::life
