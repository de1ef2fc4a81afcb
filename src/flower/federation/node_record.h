/// \file  What a node writes down of its work: lines of its log in plain words, and events of its audit log
/// (fed/store/audit.h), which is audit.jsonl in its memory folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "fed/exchange/message.h"
#include "fed/store/audit.h"
#include "flower/federation/agreement.h"
#include "flower/federation/envelope.h"

namespace evenkeel::flower {

/// Records one node's work. Threads: one. \throws kIo from every function that adds an event, when the file cannot be
/// written
class NodeRecord {
 public:
  /// \param folder  the node's memory folder, made with the first event; empty: there is no audit log
  explicit NodeRecord(const std::filesystem::path& folder);

  /// Returns the head of the audit log; empty if there is none.
  const std::string& head() const { return audit_.head(); }
  /// Adds an event of this node's process.
  void add(const fed::AuditEvent& event) { audit_.add(event); }

  /// Begins a new envelope, and writes down what it says about the last work.
  /// \return what it says, if anything \throws kData when it cannot be read
  std::optional<WorkOutcome> hear(const Envelope& envelope);
  void agreed(const Envelope& offer, const Acceptance& acceptance);
  void refused(const Envelope& envelope, const std::string& why);
  void received(const Envelope& envelope, const fed::Task& task);
  /// Keeps the event and log line of an answer until sent() or not_sent(). \param rows  training rows of this client
  void answered(const fed::Task& task, const fed::Reply& reply, const Envelope& answer, int64_t rows);
  void adapter(const Envelope& envelope, const std::string& where);
  void over(const Envelope& envelope);

  /// Reports that the server has received the last answer.
  void sent();
  /// Reports that the server did not receive the last answer, or refused it.
  void not_sent(const std::string& why);

 private:
  /// An answer that is on its way.
  struct Answer {
    fed::AuditEvent event;
    std::string work;  // what was done, in words
  };
  /// Scores since the last line of the log.
  struct Scores {
    int64_t round = 0, count = 0, down = 0, up = 0;
  };
  void tell_scores();
  void add_of_run(fed::AuditEvent event);

  fed::AuditLog audit_;
  std::string run_;   // of the envelope that is being answered
  int64_t down_ = 0;  // bytes received with the task under way
  std::optional<Answer> answer_;
  Scores scores_;
};

}  // namespace evenkeel::flower
