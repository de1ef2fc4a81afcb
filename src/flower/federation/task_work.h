/// \file  Says which kind of work a task is, for records.
#pragma once

#include <variant>

#include "fed/exchange/message.h"
#include "fed/store/audit.h"

namespace evenkeel::flower {

inline fed::AuditWork work_of(const fed::Task& task) {
  if (std::holds_alternative<fed::Score>(task.ask)) return fed::AuditWork::kScore;
  return std::holds_alternative<fed::Train>(task.ask) ? fed::AuditWork::kTrain : fed::AuditWork::kGradients;
}

/// Returns the round of a task as AuditEvent::round counts it: 1 is the first round of training; a score is of the
/// state after so many rounds.
inline int64_t round_of(const fed::Task& task) {
  return task.round + (work_of(task) == fed::AuditWork::kScore ? 0 : 1);
}

}  // namespace evenkeel::flower
