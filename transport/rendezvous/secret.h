#pragma once

#include <string>

#include "rondo/config.h"
#include "transport/auth/secret.h"
#include "transport/rendezvous/environment.h"
#include "transport/rendezvous/rendezvous_url.h"

namespace rondo {

// The secret of a job of several processes: the unique id's key; none with config.insecure; that of config.secret_file
// or secret_fd; else this user's own on this machine, made if there is none yet. Throws Exception(kInvalid) naming the
// variable and what to do; kBootstrap where there is no private folder to keep the user's own in.
Secret find_secret(const Config& config, const RendezvousUrl& rendezvous, const Environment& environment);

// A regular file of this user's, without permissions for group and others, of 16 to 4096 bytes. Throws
// Exception(kInvalid).
Secret read_secret_file(const std::string& path);
// What the descriptor gives from its beginning, or, of a pipe, what is left in it; it stays open. Throws
// Exception(kInvalid).
Secret read_secret_descriptor(int number);
// 32 random bytes in XDG_RUNTIME_DIR, /run/user/<uid> or /tmp/rondo-<uid>, the first of these that is a folder of this
// user's with mode 0700.
Secret user_secret(const Environment& environment);

}  // namespace rondo
