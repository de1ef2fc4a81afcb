/// \file  Lets the ranks of spawn() report to the process that started them why they end. That process alone writes the
/// error of the run, as its last line. Ranks of other launchers write their own errors.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/plain/error.h"
#include "base/system/interrupt.h"

namespace evenkeel::cluster {

/// Says why a rank ended before the run was done.
struct RankEnd {
  int rank = 0;
  double time = 0;              ///< seconds_now() when the rank failed; all processes share this clock
  bool is_consequence = false;  ///< true: the rank left only because another one had failed
  bool is_interrupted = false;  ///< true: `text` says how to resume
  ErrorKind kind = kIo;         ///< kind of the error; not used if interrupted
  std::string text{};           ///< one line, without the kind
};

/// Returns the failure that caused the others: the first failure that is no consequence, or the first of all if all are
/// consequences (of a frozen rank).
/// \param failures       at least one
/// \param survives_loss  true: the run survives the loss of a rank; the cause is then the last failure that is no
///                       consequence
const RankEnd& cause_of(std::span<const RankEnd> failures, bool survives_loss);

/// Throws Interrupted, or Error. "rank R: " is put before the text of an Error, unless R is 0 or the text begins with a
/// rank.
[[noreturn]] void rethrow(const RankEnd& failure);

/// Memory that the starting process shares with its ranks: each rank writes one note there, and a rank that is killed
/// while it writes disturbs no other.
class RankNotes {
 public:
  /// Makes empty notes, before the ranks are forked. \throws kIo when there is no memory
  explicit RankNotes(int ranks);
  /// Makes tell_starter() in this process write the note of `rank`. Call it in the forked process.
  void belong_to(int rank) const;
  /// Returns the note of a rank that has ended, or nullopt if it wrote none.
  std::optional<RankEnd> read(int rank) const;

 private:
  struct Note;
  Note* notes_;  // shared memory, kept as long as the process lives
  static Note* own;
  friend bool tell_starter(bool is_interrupted, ErrorKind kind, const std::string& text) noexcept;
};

/// Tells the starting process why this rank ends, instead of writing it on stderr. The first call counts. Returns false
/// in a process that spawn() has not started, which then has to write the line itself. Threads: any.
bool tell_starter(const Error& error) noexcept;
bool tell_starter(const Interrupted& interrupted) noexcept;

/// Remembers whether the next error of this process is only a consequence of another rank's failure.
void set_leaving_because_of_another(bool is_consequence);

}  // namespace evenkeel::cluster
