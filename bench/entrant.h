#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/row.h"

namespace rondo::bench {

// What a contest asks of all libraries alike.
struct Question {
  int world = 2;
  std::string transport;   // shm, tcp
  std::string congestion;  // of tcp, for every library: in a network namespace; "": each library's own settings
  std::string buffers = "plain";
  std::string collective = "all_reduce";
  std::string sizes = "8,64K,1M,64M";  // as --sizes
  double seconds = 0.25;               // of timed operations a size and turn

  bool operator==(const Question&) const = default;
  // "all_reduce, tcp @reno, plain buffers, 2 ranks".
  std::string text() const;
};

// One library in one setting: a program that answers a question with rows in a file, a row a size.
struct Entrant {
  std::string library;
  std::string setting;  // "ring forced, heap kept"
  std::string program;
  std::vector<std::string> args;  // without sizes
  std::map<std::string, std::string> environment;
  std::vector<std::string> sizes;  // that it can be asked, each as --sizes takes it
  bool alone = false;              // it is likely never to end with some size: one size a program

  // "NAME=value ... program args --sizes 8,64K", for a shell.
  std::string command() const;
};

// What a file of peers is searched in: build/peers and build below the working directory, and beside this program.
struct PeerPlaces {
  std::vector<std::string> roots;
};
PeerPlaces default_places();

// All settings of a library that can answer the question. Empty with a reason in `missing` if the library is not there
// or has no such transport. Known: rondo, openmpi, mpich, intelmpi, gloo, gloo-sync, gloo-busy.
std::vector<Entrant> entrants(const std::string& library, const Question& question, const PeerPlaces& places, int cores,
                              std::string& missing);
const std::vector<std::string>& known_libraries();

}  // namespace rondo::bench
