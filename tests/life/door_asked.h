#pragma once

#include <memory>
#include <string>

#include "rondo/export.h"
#include "tests/life/door.h"
#include "tests/life/life.h"

// Doors of other languages. A program that plays one rank loads ranks.so and calls life_play(), which asks it for each
// call of a Group or a Handle by a line as those of a life, `VERB of=NUMBER key=value ...`: NUMBER is what the program
// has answered as `made`, addresses are numbers, and what has no value is left out. It answers by life_answer().
extern "C" {

struct life_answer_t;
// On the thread that plays; several do at once. Calls life_answer() once, before it returns.
typedef void (*life_ask_t)(const char* question, struct life_answer_t* answer);

// play_life() of rank.h by the text in `file`.
RONDO_EXPORT int life_play(life_ask_t ask, const char* file, int rank, const char* meeting, const char* folder);
// values: "answer key=value ..."; code: of the failure as error_code_name() has it, "": none; ranks: "0,2".
RONDO_EXPORT void life_answer(struct life_answer_t* answer, const char* values, const char* code, const char* ranks,
                              const char* message);
// The operation whose `on_end` had this function has ended. Any thread; once.
RONDO_EXPORT void life_ended(void* function);
}

namespace rondo::life {

// Before any thread asks.
void ask_by(life_ask_t ask);
// process: as Thread has it; from the world on: a newcomer.
Error join_asked(const Life& life, int process, const std::string& meeting, std::unique_ptr<Group>* group);

}  // namespace rondo::life
