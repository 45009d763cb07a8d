// The last events of a context, from memory: those before something went wrong, without an
// event file.
//
// A context keeps its last 1,000 events that are no replays (docs/events.md), in
// memory that is there when the context is made. A replay costs nothing for it: events say how many
// replays of the function came before.
#pragma once

#include <span>
#include <string>

#include "cgtree/context.h"

namespace cgtree {

// Returns them as lines of JSON, the oldest first: tools read them as an event file. Any thread, at
// any time.
std::string recent_events(const Context& context);

// Writes them to a file. Any thread, at any time. Throws InvalidArgument, with the reason, if the
// file cannot be opened or written: to a full disk, for example. Then its end is missing.
void dump_events(const Context& context, const std::string& path);

// From now on the process writes the last events of all its contexts to the file when it gets one
// of the signals. By default these are the signals of a crash, SIGABRT among them, with which the
// checks of this library end the process. The file is written by the signal handler itself, without
// a lock and without an allocation, because after a crash no other thread can be relied on; so it
// also shows a process that hangs in a call. Then the signal takes its course: to the handler that
// was there before, or to its default action; but after SIGUSR1 and SIGUSR2, whose default action
// would be to end a process that was only asked, the process goes on.
//
// Called again it names another file, and adds signals. A handler that a program installs later
// replaces this one, also if this is called again: it may call the one that sigaction() returned to
// it. Requires: no other thread calls it at the
// same time. Throws InvalidArgument for a path that is empty or has 4,096 bytes or more, and for a
// number that is no signal, or one that cannot be handled.
void dump_events_on_signal(const std::string& path, std::span<const int> signals = {});

}  // namespace cgtree
