#include "fed/store/audit_summary.h"

namespace evenkeel::fed {

void AuditSummary::add(const AuditEvent& event) {
  const bool replied = event.kind == AuditKind::kReply;
  if (event.work == AuditWork::kNone || (!replied && event.kind != AuditKind::kLost)) return;
  auto& sum = traffic[event.work];
  ++(replied ? sum.replies : sum.lost);
  sum.bytes_down += event.bytes_down.value_or(0);
  sum.bytes_up += event.bytes_up.value_or(0);
  if (event.client) last[*event.client][event.work] = event;
}

WorkTraffic AuditSummary::of(AuditWork work) const {
  const auto known = traffic.find(work);
  return known == traffic.end() ? WorkTraffic{} : known->second;
}

AuditSummary summary_of(const std::filesystem::path& file) {
  AuditSummary summary;
  read_audit(file, [&](const AuditLine& line) { summary.add(line.event); });
  return summary;
}

}  // namespace evenkeel::fed
