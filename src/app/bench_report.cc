#include "app/bench_report.h"

#include <fmt/format.h>

#include "app/session.h"

namespace exode::app {
namespace {

using nlohmann::ordered_json;

constexpr double kMicro = 1e6, kGiga = 1e9;

double percent_of_read(uint64_t bytes, double seconds, const BenchReport& report) {
  if (seconds <= 0) return 0;
  return 100 * static_cast<double>(bytes) / seconds / report.bandwidth.read;
}

double tokens_per_second(const BenchDecode& d) { return d.rows / d.step_seconds; }
double tokens_per_second(const BenchPrefill& p) { return p.tokens / p.seconds; }

ordered_json ops_json(const std::vector<BenchOp>& ops, const BenchReport& report) {
  ordered_json list = ordered_json::array();
  for (const BenchOp& op : ops) {
    list.push_back({{"op", op.op},
                    {"calls", op.calls},
                    {"bytes", op.bytes},
                    {"flops", op.flops},
                    {"us", op.seconds * kMicro},
                    {"percent_of_read", percent_of_read(op.bytes, op.seconds, report)}});
  }
  return list;
}

ordered_json decode_json(const BenchDecode& d, const BenchReport& report) {
  ordered_json out{{"context", d.context}, {"rows", d.rows}};
  if (!d.skipped.empty()) {
    out["skipped"] = d.skipped;
    return out;
  }
  const BenchOp total = total_of(d.ops);
  out["tokens_per_s"] = tokens_per_second(d);
  out["step_us"] = d.step_seconds * kMicro;
  out["kernels_us"] = total.seconds * kMicro;
  out["overhead_us"] = (d.step_seconds - total.seconds) * kMicro;
  out["submit_us"] = d.submit_seconds * kMicro;
  out["step_bytes"] = total.bytes;
  out["percent_of_read"] = percent_of_read(total.bytes, d.step_seconds, report);
  out["ops"] = ops_json(d.ops, report);
  return out;
}

std::string ops_text(const std::vector<BenchOp>& ops, const BenchReport& report) {
  std::string out = fmt::format("  {:<18}{:>7}{:>14}{:>12}{:>12}{:>10}\n", "op", "calls",
                                "MB a step", "us a step", "us a call", "% of read");
  std::vector<BenchOp> rows = ops;
  rows.push_back(total_of(ops));
  for (const BenchOp& op : rows) {
    out += fmt::format("  {:<18}{:>7}{:>14.2f}{:>12.1f}{:>12.2f}{:>10.1f}\n", op.op, op.calls,
                       static_cast<double>(op.bytes) / 1e6, op.seconds * kMicro,
                       op.seconds * kMicro / std::max(op.calls, 1),
                       percent_of_read(op.bytes, op.seconds, report));
  }
  return out;
}

std::string decode_text(const BenchReport& report) {
  std::string out = fmt::format("\n{:>8}{:>6}{:>11}{:>11}{:>12}{:>12}{:>11}{:>12}{:>11}\n",
                                "context", "rows", "tokens/s", "step us", "kernels us",
                                "overhead us", "submit us", "MB a step", "% of read");
  for (const BenchDecode& d : report.decodes) {
    if (!d.skipped.empty()) {
      out += fmt::format("{:>8}{:>6}  not measured: {}\n", d.context, d.rows, d.skipped);
      continue;
    }
    const BenchOp total = total_of(d.ops);
    out +=
        fmt::format("{:>8}{:>6}{:>11.1f}{:>11.1f}{:>12.1f}{:>12.1f}{:>11.1f}{:>12.1f}{:>11.1f}\n",
                    d.context, d.rows, tokens_per_second(d), d.step_seconds * kMicro,
                    total.seconds * kMicro, (d.step_seconds - total.seconds) * kMicro,
                    d.submit_seconds * kMicro, static_cast<double>(total.bytes) / 1e6,
                    percent_of_read(total.bytes, d.step_seconds, report));
  }
  return out;
}

}  // namespace

ordered_json bench_json(const BenchReport& report, const std::string& model) {
  const EngineFacts& f = report.facts;
  ordered_json out{{"model", model},
                   {"family", f.family},
                   {"device", f.device},
                   {"kv_format", f.kv_format},
                   {"load_s", f.load_seconds},
                   {"read_gb_s", report.bandwidth.read / kGiga},
                   {"copy_gb_s", report.bandwidth.copy / kGiga},
                   {"peak_device_bytes", report.peak_bytes}};
  for (const PlanLine& line : f.plan) out["plan"][line.purpose] = line.bytes;
  out["decode"] = ordered_json::array();
  for (const BenchDecode& d : report.decodes) out["decode"].push_back(decode_json(d, report));
  out["prefill"] = ordered_json::array();
  for (const BenchPrefill& p : report.prefills) {
    out["prefill"].push_back({{"tokens", p.tokens},
                              {"chunk", p.chunk},
                              {"seconds", p.seconds},
                              {"tokens_per_s", tokens_per_second(p)},
                              {"ops_of_last_chunk", ops_json(p.ops, report)}});
  }
  return out;
}

std::string bench_text(const BenchReport& report, const std::string& model) {
  const EngineFacts& f = report.facts;
  std::string out =
      fmt::format("model      {} ({}), loaded in {:.2f} s\n", model, f.family, f.load_seconds);
  out += fmt::format("device     {}\n", f.device);
  out += fmt::format("bandwidth  read {:.0f} GB/s, copy {:.0f} GB/s\n",
                     report.bandwidth.read / kGiga, report.bandwidth.copy / kGiga);
  out +=
      fmt::format("memory     {} at most, as the device reports\n", human_bytes(report.peak_bytes));
  out += decode_text(report);
  for (const BenchPrefill& p : report.prefills) {
    out += fmt::format("\nprefill of {} tokens, {} a step: {:.0f} tokens/s ({:.3f} s)\n", p.tokens,
                       p.chunk, tokens_per_second(p), p.seconds);
  }
  for (const BenchDecode& d : report.decodes) {
    if (!d.skipped.empty()) continue;
    out += fmt::format("\none step of {} rows at context {}\n{}", d.rows, d.context,
                       ops_text(d.ops, report));
  }
  for (const BenchPrefill& p : report.prefills) {
    out += fmt::format("\nlast {} rows of a prompt of {} tokens\n{}", p.chunk, p.tokens,
                       ops_text(p.ops, report));
  }
  return out;
}

}  // namespace exode::app
