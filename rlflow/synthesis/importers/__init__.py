"""Rules of TASO and Tensat: read, given our meaning, judged, and written as rule files of ours."""
