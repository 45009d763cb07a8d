// The last events of a context, from memory, without an event file.
//
// A context keeps its last 1,000 events other than replays (docs/events.md), in memory that is
// allocated when the context is made. It costs a replay nothing: events have the number of the
// function's earlier replays. Names are cut after 44 bytes, texts after 92.
#pragma once

#include <span>
#include <string>

#include "cgtree/context.h"

namespace cgtree {

// Returns them as lines of JSON, the oldest first; tools read them as an event file. Any thread, at
// any time.
std::string recent_events(const Context& context);

// Writes them to a file. Any thread, at any time. Throws InvalidArgument, with the reason, if the
// file cannot be opened or written: on a full disk, for example. Then the end of the file is
// missing.
void dump_events(const Context& context, const std::string& path);

// From now on the process writes the last events of all its contexts to the file at one of the
// signals. By default these are the signals of a crash, including SIGABRT, with which the checks of
// this library end the process. The signal handler itself writes the file, without a lock and
// without an allocation, because after a crash no other thread can be relied on; so it also shows a
// process that hangs in a call. Then the signal goes to the earlier handler, or takes its default
// action. SIGUSR1 and SIGUSR2 are exceptions: their default action would end a process that was
// only asked, so the process continues.
//
// A further call names another file, and adds signals. A handler that a program installs later
// replaces this one, even if this is called again: it may call the handler that sigaction()
// returned to it. Requires: no other thread calls it at the same time. Throws InvalidArgument for a
// path that is empty or has 4,096 bytes or more, and for a number that is not a signal, or a signal
// that cannot be handled.
void dump_events_on_signal(const std::string& path, std::span<const int> signals = {});

}  // namespace cgtree
