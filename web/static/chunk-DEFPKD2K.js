import{l as i}from"./chunk-ZXULV7DP.js";function o(n){let e=i(n);return{values:e,set:(r,t)=>{e.value={...e.value,[r]:t}},dirty:Object.keys(a(n,e.value)).length>0}}function a(n,e){let r=Object.keys(e);return Object.fromEntries(r.filter(t=>JSON.stringify(e[t])!==JSON.stringify(n[t])).map(t=>[t,e[t]]))}function l(n){return n.split(`
`).map(e=>e.trim()).filter(e=>e!=="")}export{o as a,a as b,l as c};
