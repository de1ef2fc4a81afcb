/// \file  The audit log of a federation: one line per event, in the run folder of a server (federation/audit.jsonl) and
/// in the memory folder of a node (audit.jsonl). The lines form a chain (base/plain/chained_lines.h). Example:
///   AuditLog audit(folder / kAuditFile);
///   audit.add({.kind = AuditKind::kAdmitted, .key = "SHA256:...", .name = "harbour", .outcome = "added to keys.txt"});
///
/// No line holds rows, texts of rows, or values of scores.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/format/config_table.h"
#include "base/plain/chained_lines.h"

namespace evenkeel::fed {

inline constexpr std::string_view kAuditFile = "audit.jsonl";

/// What an event reports.
enum class AuditKind {
  kStart,     ///< a process of the server or the node has begun
  kResume,    ///< a server continues a run that had begun
  kStop,      ///< the process ends; the outcome says why. Missing after a kill
  kOffer,     ///< the server offers the run to a node
  kJoin,      ///< a node has become a client; on a node: it has agreed to the run
  kAgain,     ///< a client's node came back with what was agreed on, after server or node was restarted
  kRefused,   ///< a node does not join, or a node refuses what the server asks; the outcome has the reason
  kTask,      ///< a task was sent to a node; on a node: received from the server
  kReply,     ///< a reply was accepted; on a node: was sent
  kLost,      ///< a task ended without a usable reply; the outcome has the reason
  kOutcome,   ///< on a node: whether the server took the node's previous reply
  kRound,     ///< a round was committed
  kAdapter,   ///< a node has the final adapter, or has not taken it
  kAdmitted,  ///< a key may join from now on
  kRevoked,   ///< a key may no longer join
  kChanged,   ///< the value of a config key has changed; the outcome has the old and the new value
  kBound,     ///< a bound was hit, for example of the norm of an update; the outcome says what was done
  kMasked,    ///< a masked round: attempt, members and threshold, and what became of it
  kOver,      ///< the run is over for this node
  kTorn,      ///< marks a line that a killed process left incomplete (base/plain/chained_lines.h)
};
constexpr auto names(AuditKind) {
  using enum AuditKind;
  using Name = config::EnumName<AuditKind>;
  return std::array{
      Name{"start", kStart},     Name{"resume", kResume},     Name{"stop", kStop},       Name{"offer", kOffer},
      Name{"join", kJoin},       Name{"again", kAgain},       Name{"refused", kRefused}, Name{"task", kTask},
      Name{"reply", kReply},     Name{"lost", kLost},         Name{"outcome", kOutcome}, Name{"round", kRound},
      Name{"adapter", kAdapter}, Name{"admitted", kAdmitted}, Name{"revoked", kRevoked}, Name{"changed", kChanged},
      Name{"bound", kBound},     Name{"masked", kMasked},     Name{"over", kOver},       Name{"torn", kTorn}};
}

/// What a task asks for. kNone: the event is about no task.
enum class AuditWork { kNone, kTrain, kGradients, kScore };
constexpr auto names(AuditWork) {
  using Name = config::EnumName<AuditWork>;
  return std::array{Name{"", AuditWork::kNone}, Name{"train", AuditWork::kTrain},
                    Name{"gradients", AuditWork::kGradients}, Name{"score", AuditWork::kScore}};
}

/// One event. Fields without a value are not written.
struct AuditEvent {
  AuditKind kind = AuditKind::kStart;
  std::string key{};   ///< fingerprint of the key of the other side, or of the key that the event is about
  std::string name{};  ///< name of the key's owner
  std::string run{};   ///< name of the run (Offer::run); on a server at the start of its process only
  std::optional<int64_t> client{};
  std::optional<int64_t> round{};  ///< of training: the round, 1 = the first; of a score: the number of rounds done
  AuditWork work = AuditWork::kNone;
  std::optional<int64_t> bytes_down{}, bytes_up{};  ///< bytes to the client and from it, headers and payloads
  std::string digest{};              ///< SHA-256 of the content: a payload, an offer or a config. Empty for scores
  std::string outcome{};             ///< a text; for kLost, kRefused and kBound the reason
  std::optional<double> seconds{};   ///< from sending the task to the result
  std::optional<double> client_s{};  ///< part of `seconds` between the node's receipt of the task and its reply
  std::optional<double> moved{};     ///< distance that the client's adapter moved (fed/round/payload_check.h)
  std::string peer{};                ///< head of the other side's audit log, as its message reports it

  void visit(auto& field) {  // base/format/record.h
    field("kind", kind);
    visit_text(field, "key", key);
    visit_text(field, "name", name);
    visit_text(field, "run", run);
    field("client", client);
    field("round", round);
    if (field.holds("work", work != AuditWork::kNone)) field("work", work);
    field("bytes_down", bytes_down);
    field("bytes_up", bytes_up);
    visit_text(field, "digest", digest);
    visit_text(field, "outcome", outcome);
    field("seconds", seconds);
    field("client_s", client_s);
    field("moved", moved);
    visit_text(field, "peer", peer);
  }

 private:
  static void visit_text(auto& field, std::string_view key, std::string& text) {
    if (field.holds(key, !text.empty())) field(key, text);
  }
};

/// Appends events to a file. Threads: one.
class AuditLog {
 public:
  /// Reads the head of an existing log; writes nothing.
  /// \param file  the log. The first event creates its folder. Empty: no event is ever written
  explicit AuditLog(std::filesystem::path file = {});

  /// Appends an event with the current time. Texts are escaped and shortened to one line. Tasks, and replies with
  /// scores, are flushed to disk only with the next event of another kind. \throws kIo
  void add(const AuditEvent& event);
  /// Returns the digest of the log's last line, also of an earlier process; empty if there is no line.
  const std::string& head() const { return head_; }

 private:
  std::filesystem::path file_;
  std::string head_;
};

/// A line of a log.
struct AuditLine {
  std::string time;  ///< UTC, with milliseconds
  AuditEvent event;
  std::string digest;  ///< SHA-256 of the line
  std::string place;   ///< file and line number, for messages
};

/// Reads a log and checks its chain. \param on_line  receives each line before the first bad one; may be empty
/// \return the result of the check; of 0 lines if there is no file
ChainCheck read_audit(const std::filesystem::path& file, const std::function<void(const AuditLine&)>& on_line = {});

}  // namespace evenkeel::fed
