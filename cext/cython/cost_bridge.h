// What cost.pxi cannot say in Cython: owning a Pricer, and string views.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rlflow/cost.h"

namespace rlflow::bridge {

inline std::shared_ptr<Pricer> make_analytic_pricer(double gflops, double vector_gflops, double gbps, double overhead_us, double view_us,
                                                    const std::string& fusion) {
  AnalyticDevice device{gflops, vector_gflops, gbps, overhead_us, view_us};
  return std::make_shared<Pricer>(Pricer::analytic(device, fusion_rules(fusion, 0)));
}
inline std::shared_ptr<Pricer> make_table_pricer(const std::string& fusion, int block) {
  return std::make_shared<Pricer>(Pricer::table(fusion_rules(fusion, block)));
}
inline void bind_dims(Pricer& p, const std::vector<std::pair<std::string, Int>>& values) { p.bind(values); }
inline std::string fusion_name(const Pricer& p) { return std::string(p.fusion()); }
inline std::string region_kind(const Region& r) { return std::string(r.kind); }
inline bool has_price(Picoseconds p) { return p != kNoPrice; }

}  // namespace rlflow::bridge
